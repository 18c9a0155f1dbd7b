#!/bin/bash
# Removes a scratch folder that nobody uses; run as its owner.
#
#   remove-scratch.sh FOLDER NAME MINUTES      so long nobody has written to it
set -u
cd -P "$1" || exit 1
if [ ! -d "$2" ] || [ -L "$2" ]; then exit 1; fi
minutes=$3
# Nobody owns what was left for the user to fetch, as a log says: that has a day.
if [ ! -e "$2/owner" ] && [ "$minutes" -lt 1440 ]; then minutes=1440; fi
# Something in it is young: a long run that writes seldom.
if [ -n "$(find -P "$2" -mmin "-$minutes" -print -quit 2>/dev/null)" ]; then exit 1; fi
# Its collector holds this file as long as it lives.
if [ -f "$2/owner" ] && [ ! -L "$2/owner" ]; then
    exec 9<"$2/owner" || exit 1
    flock --nonblock 9 || exit 1
fi
exec rm -rf --one-file-system -- "$2"
