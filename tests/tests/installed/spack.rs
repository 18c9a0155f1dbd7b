//! The recipe for Spack: Python takes it, and with a stand-in for Spack it asks for what a build takes and runs `ci/install`.

use rpd_tests::harness::{Job, python, repository};
use serde_json::{Value as Json, json};
use std::fs;

/// Loads the recipe with modules that note its directives, installs it with and without MPI, and prints all as JSON.
const STAND_IN: &str = r#"
import contextlib, json, sys, types

told, ran, conditions = [], [], []

def directive(name):
    def note(*args, **kwargs):
        when = " ".join(conditions + [kwargs.pop("when", "")]).strip()
        told.append([name, list(args), {key: value for key, value in kwargs.items()}, when])
    return note

@contextlib.contextmanager
def when(condition):
    conditions.append(condition)
    yield
    conditions.pop()

def decorator(*args, **kwargs):
    return lambda function: function

class Text(str):
    def __getattr__(self, name):
        return Text(self + "/" + name)

class Executable:
    def __init__(self, path):
        self.path = path
    def __call__(self, *args):
        ran.append([self.path] + [str(arg) for arg in args])

package = types.ModuleType("spack.package")
names = {name: directive(name) for name in ("license", "version", "variant", "depends_on", "conflicts", "maintainers")}
names.update(when=when, run_after=decorator, on_package_attributes=decorator, Executable=Executable)
names.update(join_path=lambda *parts: "/".join(str(part) for part in parts))
vars(package).update(names)
package.__all__ = sorted(names)
generic = types.ModuleType("spack_repo.builtin.build_systems.generic")
generic.Package = type("Package", (), {})
for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["spack.package"] = package
sys.modules["spack_repo.builtin.build_systems.generic"] = generic

recipe = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), recipe)

class Spec(dict):
    def __init__(self, mpi):
        super().__init__(mpi=types.SimpleNamespace(mpicc="MPICC"), llvm=types.SimpleNamespace(prefix=Text("LLVM")))
        self.mpi = mpi
    def satisfies(self, condition):
        assert condition == "+mpi"
        return self.mpi

class Environment(dict):
    set = dict.__setitem__
    def unset(self, name):
        self[name] = None

environments = []
for mpi in (True, False):
    rpd = recipe["Rpd"]()
    rpd.spec, rpd.prefix = Spec(mpi), Text("PREFIX")
    rpd.stage = types.SimpleNamespace(path="STAGE", source_path="SOURCE")
    environment = Environment()
    rpd.setup_build_environment(environment)
    rpd.install(rpd.spec, rpd.prefix)
    rpd.programs_start()
    environments.append(environment)
files = recipe["Rpd"].sanity_check_is_file
print(json.dumps({"told": told, "ran": ran, "environments": environments, "files": files}))
"#;

#[test]
fn the_recipe_for_spack_asks_for_what_a_build_takes() {
    let repo = repository().join("ci/spack/spack_repo/rpd");
    let recipe = repo.join("packages/rpd/package.py");
    // Where Spack looks: the folder is called like the namespace.
    assert!(fs::read_to_string(repo.join("repo.yaml")).unwrap().contains("namespace: rpd\n"));
    let outcome = Job::new(python()).args(["-B", "-c", STAND_IN]).arg(&recipe).run().success();
    let told: Json = serde_json::from_str(&outcome.stdout).unwrap();
    let directives = told["told"].as_array().unwrap();
    let has = |name: &str, args: Json, when: &str| {
        directives.iter().any(|one| one[0] == name && one[1] == args && one[3] == when)
    };
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let value = |key: &str| -> String {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = \""))).unwrap();
        line.trim_end_matches('"').to_owned()
    };
    assert!(has("version", json!([value("version")]), ""), "{told:#}");
    assert!(has("license", json!([value("license")]), ""), "{told:#}");
    assert!(has("depends_on", json!([format!("rust@{}:", value("rust-version"))]), ""), "{told:#}");
    assert!(has("depends_on", json!(["mpi"]), "+mpi") && has("depends_on", json!(["c"]), ""), "{told:#}");
    assert!(has("depends_on", json!(["llvm+clang"]), "+mpi"), "{told:#}");
    let variant = directives.iter().find(|one| one[0] == "variant" && one[1] == json!(["mpi"])).unwrap();
    assert_eq!(variant[2]["default"], true);
    // What mpi-sys needs is there with MPI alone.
    let [with, without] = [0, 1].map(|i| &told["environments"][i]);
    assert_eq!((&with["MPICC"], &with["LIBCLANG_PATH"]), (&json!("MPICC"), &json!("LLVM/lib")));
    assert_eq!((&without["MPICC"], &without["CARGO_HOME"]), (&Json::Null, &json!("STAGE/cargo")));
    let programs = ["rpd-collect", "rpd-merge", "rpd-report"]
        .map(|name| json!([format!("PREFIX/bin/{name}"), "--version"]));
    let [collect, merge, report] = programs;
    assert_eq!(
        told["ran"],
        json!([
            ["SOURCE/ci/install", "PREFIX"],
            collect,
            merge,
            report,
            ["SOURCE/ci/install", "--no-mpi", "PREFIX"],
            collect,
            merge,
            report
        ])
    );
    // What it looks for is installed.
    let installed = super::Installed::new();
    for file in told["files"].as_array().unwrap() {
        assert!(installed.prefix().join(file.as_str().unwrap()).is_file(), "{file}");
    }
}
