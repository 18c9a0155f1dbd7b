-- Lmod: put this file in a folder of MODULEPATH, below a name and with the version: rpd/0.1.0.lua
help([[rpd: collects what the ranks of a job do, and merges it.
  srun -n 16 rpd-collect -- python3 train.py
  rpd-merge
  rpd-report
man rpd-collect, man rpd-merge, man rpd-report]])
whatis("Name: rpd")
whatis("Description: distributed collection and merge of GPU and HPC profiles")
-- The prefix that ci/install was given.
local prefix = "@PREFIX@"
prepend_path("PATH", pathJoin(prefix, "bin"))
-- man finds share/man by PATH; a MANPATH would hide the pages of the system.
