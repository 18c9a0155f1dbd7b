#!/usr/bin/env bash
# Submits a job and one that merges its runs when it is over, also if it fails, is cancelled or runs out of time.
#
#   submit-with-merge.sh [SBATCH_OPTION]... SCRIPT [ARG]...
#
#   RPD_MERGE_SBATCH   options for the merge job, such as "--account=tools --time=20"
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -eq 0 ] || [ "$1" = -h ] || [ "$1" = --help ]; then
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | head -n -1
    exit 2
fi
for word in "$@"; do
    case $word in
    -a | -a[0-9]* | --array | --array=*)
        echo "submit-with-merge.sh: tasks of an array merge themselves: sbatch --array=... array.sbatch" >&2
        exit 2
        ;;
    --test-only) exec sbatch "$@" ;;
    esac
done
IFS=$' \t\n' read -ra more <<<"${RPD_MERGE_SBATCH:-}"
job=$(sbatch --parsable "$@")
job=${job%%;*}
merge=$(sbatch --parsable --dependency="afterany:$job" ${more[@]+"${more[@]}"} "$here/merge.sbatch" "$job") || {
    echo "submit-with-merge.sh: job $job was submitted; its merge was not: sbatch --dependency=afterany:$job $here/merge.sbatch $job" >&2
    exit 1
}
echo "job $job, merged by job ${merge%%;*}"
