"""Recipe of rpd for Spack 1.0 and newer. It builds the checkout that it lies in:

    spack repo add ci/spack/spack_repo/rpd
    spack dev-build rpd@0.1.0
"""

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Rpd(Package):
    """Collects what the ranks of a GPU or HPC job do, and merges it into one RocPD database or Perfetto traces."""

    license("MIT")

    # No release has an address yet: a mirror has url or git here.
    version("0.1.0")

    variant("mpi", default=True, description="rpd-merge-mpi and rpd-report-mpi, which run on several nodes")

    # SQLite, zstd and zlib come with the sources; a C compiler is for these.
    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("binutils", type="build")
    with when("+mpi"):
        depends_on("mpi")
        # bindgen reads mpi.h.
        depends_on("llvm+clang", type="build")

    conflicts("platform=darwin", msg="rpd is for Linux")
    conflicts("platform=windows", msg="rpd is for Linux")

    sanity_check_is_file = [
        join_path("bin", "rpd-collect"),
        join_path("bin", "rpd-merge"),
        join_path("bin", "rpd-report"),
        join_path("lib", "librpd_intercept.so"),
        join_path("share", "man", "man1", "rpd-merge.1"),
    ]

    def setup_build_environment(self, env):
        # Not the home of the user.
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))
        env.unset("CARGO_TARGET_DIR")
        if self.spec.satisfies("+mpi"):
            env.set("MPICC", self.spec["mpi"].mpicc)
            env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    def install(self, spec, prefix):
        options = [] if spec.satisfies("+mpi") else ["--no-mpi"]
        install_rpd = Executable(join_path(self.stage.source_path, "ci", "install"))
        install_rpd(*options, prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def programs_start(self):
        """The programs start and say their version."""
        for name in ("rpd-collect", "rpd-merge", "rpd-report"):
            Executable(join_path(self.prefix.bin, name))("--version")
