#%Module
# Environment Modules: put this file in a folder of MODULEPATH, with the version as its name: rpd/0.1.0
proc ModulesHelp { } {
    puts stderr "rpd: collects what the ranks of a job do, and merges it."
    puts stderr "  srun -n 16 rpd-collect -- python3 train.py"
    puts stderr "  rpd-merge"
    puts stderr "  rpd-report"
}
module-whatis "distributed collection and merge of GPU and HPC profiles"
# The prefix that ci/install was given.
set prefix {@PREFIX@}
prepend-path PATH $prefix/bin
# man finds share/man by PATH; a MANPATH would hide the pages of the system.
