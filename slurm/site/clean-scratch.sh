#!/bin/bash
# Has the owners of old scratch folders remove them; run as root by epilog.sh.
#
#   clean-scratch.sh FOLDER MINUTES
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
# Of links and of what is deeper nothing is looked at.
find -P "$1" -mindepth 1 -maxdepth 1 -type d -name 'rpd-scratch-*' -mmin "+$2" -printf '%U %G %f\0' 2>/dev/null |
    head -z -n 1000 |
    while IFS=' ' read -r -d '' uid gid folder; do
        # Ours have no other characters, and root's are root's to remove.
        case $folder in *[!A-Za-z0-9._-]*) continue ;; esac
        if [ "$uid" = 0 ]; then continue; fi
        # As the owner: a link that is laid in between can harm no other user.
        timeout --kill-after=1 5 setpriv --reuid="$uid" --regid="$gid" --clear-groups --inh-caps=-all --no-new-privs --reset-env -- \
            "$here/remove-scratch.sh" "$1" "$folder" "$2" </dev/null
    done
exit 0
