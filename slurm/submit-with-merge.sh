#!/usr/bin/env bash
# Submits a job and one that merges its runs when it is over, also if it fails, is cancelled or runs out of time.
#
#   submit-with-merge.sh [SBATCH_OPTION]... SCRIPT [ARG]...
#
# Runs are looked for in $RPD_OUTPUT of here, or rpd-out: a script that writes elsewhere needs it exported. With --array, all tasks are merged.
#
#   RPD_MERGE_SBATCH   options for the merge job, such as "--account=tools --time=20"
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
'' | -h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | head -n -1
    if [ $# -gt 0 ]; then exit 0; fi
    exit 2
    ;;
esac
IFS=$' \t\n' read -ra more <<<"${RPD_MERGE_SBATCH:-}"
status=0
# With --wait that is the status of the job.
submitted=$(sbatch --parsable "$@") || status=$?
# A wrapper of the site may say something in front of it.
submitted=${submitted##*$'\n'}
job=${submitted%%;*}
case $job in
# Nothing was submitted, as with --test-only: sbatch has said why.
'') exit "$status" ;;
*[!0-9]*)
    echo "submit-with-merge.sh: sbatch printed no number, and nothing merges the job: $submitted" >&2
    exit 1
    ;;
esac
# On another cluster.
if [ "$submitted" != "$job" ]; then more+=(--clusters="${submitted#*;}"); fi
merge=$(sbatch --parsable --dependency="afterany:$job" ${more[@]+"${more[@]}"} "$here/merge.sbatch" "$job") || {
    echo "submit-with-merge.sh: job $job was submitted; its merge was not: sbatch --dependency=afterany:$job $(printf %q "$here")/merge.sbatch $job" >&2
    exit 1
}
merge=${merge##*$'\n'}
echo "job $job, merged by job ${merge%%;*}"
exit "$status"
