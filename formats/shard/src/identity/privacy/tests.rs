use super::*;
use crate::identity::privacy::names;
use proptest::prelude::*;

#[test]
fn secrets_are_masked_and_nothing_else() {
    let cases = [
        ("train.py --epochs 3", "train.py --epochs 3"),
        ("train.py --api-key abc --lr 1", "train.py --api-key *** --lr 1"),
        ("train.py --token=abc", "train.py --token=***"),
        ("env WANDB_API_KEY=abc python3", "env WANDB_API_KEY=*** python3"),
        ("train.py --tokenizer gpt2 --max-tokens 5", "train.py --tokenizer gpt2 --max-tokens 5"),
        ("train.py --author me --keyserver a:80", "train.py --author me --keyserver ***"),
        ("login hf_abcdefghijklmnop", "login ***"),
        ("--auth=ghp_abcdefghijklmnop", "--auth=***"),
        ("--x=ghp_abcdefghijklmnop", "--x=***"),
        ("curl https://me:pw@host/x", "curl https://me:***@host/x"),
        ("curl https://host/x", "curl https://host/x"),
        ("redis://:pw@host:1 a=b", "redis://:***@host:1 a=b"),
        ("curl -H Authorization: Bearer abc", "curl -H Authorization: *** ***"),
        ("a --password --verbose", "a --password --verbose"),
        ("/data/hf_models_of_the_day/x --lr=1", "/data/hf_models_of_the_day/x --lr=1"),
    ];
    for (given, wanted) in cases {
        let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
        assert_eq!(masked_command(&arguments), wanted);
    }
}

#[test]
fn passwords_of_known_programs_are_masked_and_ports_are_not() {
    let cases = [
        ("sshpass -p hush ssh -p 22 host", "sshpass -p *** ssh -p 22 host"),
        ("/usr/bin/sshpass -phush ssh host", "/usr/bin/sshpass -p*** ssh host"),
        ("srun mysql -u me -phush db", "srun mysql -u me -p*** db"),
        ("mysql -u me -p db", "mysql -u me -p db"),
        ("docker login -u me -p hush", "docker login -u me -p ***"),
        ("docker run -p 8080:80 image", "docker run -p 8080:80 image"),
        ("redis-cli -a hush ping", "redis-cli -a *** ping"),
        ("curl -u me:hush http://h/", "curl -u *** http://h/"),
        ("curl --user me:hush http://h/", "curl --user *** http://h/"),
        ("curl --cookie hush http://h/", "curl --cookie *** http://h/"),
        ("curl --cookie-jar jar.txt http://h/", "curl --cookie-jar jar.txt http://h/"),
        ("serve -p 8080 --port 80", "serve -p 8080 --port 80"),
        ("a.out -p 4 -u 2 -w 3 -a 1 -P 5", "a.out -p 4 -u 2 -w 3 -a 1 -P 5"),
        ("prog --password hush -n 2", "prog --password *** -n 2"),
        ("prog --password=hush -n 2", "prog --password=*** -n 2"),
        ("prog --token=hush --passphrase hush", "prog --token=*** --passphrase ***"),
        ("prog --passes 3 --bypass 1 --session 4", "prog --passes 3 --bypass 1 --session 4"),
        (
            "env AWS_SESSION=hush DB_PASS=hush NUM_PASSES=3 a",
            "env AWS_SESSION=*** DB_PASS=*** NUM_PASSES=3 a",
        ),
        ("env SSH_PRIVATE_KEY=hush X_AUTH=hush PWD=/a a", "env SSH_PRIVATE_KEY=*** X_AUTH=*** PWD=/a a"),
        ("git clone https://me:hush@h/r", "git clone https://me:***@h/r"),
    ];
    for (given, wanted) in cases {
        let arguments: Vec<String> = given.split(' ').map(str::to_owned).collect();
        assert_eq!(masked_command(&arguments), wanted);
        // The same inside a script that is one argument, and masked again as in a merge.
        let script = ["sh", "-c", given].map(str::to_owned);
        assert_eq!(masked_command(&script), format!("sh -c {wanted}"));
        let again: Vec<String> = wanted.split(' ').map(str::to_owned).collect();
        assert_eq!(masked_command(&again), wanted);
    }
}

#[test]
fn secrets_inside_of_an_argument_are_masked() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";
    let with_jwt = format!("a {jwt}, b");
    let cases = [
        ("Authorization: Basic abc def", "Authorization: ***"),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: ***' x"),
        ("Bearer abc x", "Bearer *** x"),
        ("curl -H 'Cookie: id=abc; n=1' x", "curl -H 'Cookie: ***' x"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        (r#"{"password":"X y","n":1}"#, r#"{"password":"***","n":1}"#),
        (r#"{"token": "a\"b", "n": 1}"#, r#"{"token": "***", "n": 1}"#),
        (r#"{\"token\": \"ab\", \"n\": 1}"#, r#"{\"token\": \"***\", \"n\": 1}"#),
        (r#"{'secret': 5, 'n': 1}"#, r#"{'secret': ***, 'n': 1}"#),
        ("export API_KEY=abc; run --lr=1", "export API_KEY=***; run --lr=1"),
        ("http://h/?token=abc&x=1", "http://h/?token=***&x=1"),
        ("tcp://a:b@c/ tcp://d:e@f/", "tcp://a:***@c/ tcp://d:***@f/"),
        (with_jwt.as_str(), "a ***, b"),
        ("keyserver:80 a: b = c", "keyserver:80 a: b = c"),
    ];
    for (given, wanted) in cases {
        assert_eq!(masked_command(&[given.to_owned()]), wanted);
    }
}

#[test]
fn names_of_secrets_are_known() {
    let secret = "PGPASSWORD MYSQL_PWD db_pass AWS_SECRET_ACCESS_KEY GH_TOKEN SENTRY_DSN AWS_SESSION \
        AWS_SESSION_TOKEN AWS_CREDENTIALS REGISTRY_AUTH SSH_PRIVATE_KEY GPG_PASSPHRASE HTTP_COOKIE PHPSESSIONID";
    for name in secret.split_whitespace() {
        assert!(is_secret_variable(name), "{name}");
    }
    let harmless = "PWD OLDPWD PATH TOKENIZERS_PARALLELISM KMP_BYPASS SLURM_JOB_ID USER XDG_SESSION_ID \
        DESKTOP_SESSION DBUS_SESSION_BUS_ADDRESS TERM_SESSION_ID";
    for name in harmless.split_whitespace() {
        assert!(!is_secret_variable(name), "{name}");
    }
}

#[test]
fn the_traced_program_goes_by_the_same_parts() {
    assert!(names::SECRET_PARTS.iter().all(|part| rpd_ring::identity::is_secret(part)));
    for name in ["PATH", "SLURM_JOB_ID", "PGPASS", "WORLD_SIZE", "COOKIE", "NCCL_DEBUG"] {
        assert!(!rpd_ring::identity::is_secret(name), "{name}");
    }
}

#[test]
fn variables_with_the_options_of_a_program_are_masked() {
    let masked = |name: &str, value: &str| masked_environment(vec![(name.to_owned(), value.to_owned())]);
    assert_eq!(masked("CURL_OPTS", "-u me:hush -s")[0].1, "-u *** -s");
    assert_eq!(masked("MY_CURL_ARGS", "--user=me:hush")[0].1, "--user=***");
    assert_eq!(masked("DOCKER_OPTS", "-u 1000:1000 -p 80:80")[0].1, "-u 1000:1000 -p 80:80");
    assert_eq!(masked("OPTS", "-u 1000:1000")[0].1, "-u 1000:1000");
}

#[test]
fn urls_in_variables_are_masked() {
    let variable = |value: &str| vec![("UCX_X".to_owned(), value.to_owned())];
    assert_eq!(masked_environment(variable("a,http://me:pw@proxy:1")), variable("a,http://me:***@proxy:1"));
    assert_eq!(masked_environment(variable("^tcp,ib0:1")), variable("^tcp,ib0:1"));
}

proptest! {
    #[test]
    fn any_text_can_be_masked(text in "(\\PC|[ :=\"'\\\\/@]|key|://|Bearer |eyJ){0,60}") {
        masked_command(&[text]);
    }
}

/// Command lines of programs that are not in the list, with a secret in a short option.
const SHORT_OPTIONS: [&str; 13] = [
    "tool -phush -n 2",
    "tool -p=hush -n 2",
    "/opt/x/tool run -pS3-hush! -n 2",
    "tool -p'hush hush' -n 2",
    "tool -p\"hush hush\" -n 2",
    "tool -u user:hush -n 2",
    "tool -U user:hush:hush -n 2",
    "tool -uuser:hush -n 2",
    "tool --user user:hush -n 2",
    "tool --user=user:hush -n 2",
    "tool -u 'user:hush hush' -n 2",
    "tool -p''hush -n 2",
    "mpirun -np 2 tool -v -u user:hush -phush -n 2",
];

#[test]
fn short_options_of_unknown_programs_are_masked() {
    for given in SHORT_OPTIONS {
        let line = masked_line(given);
        assert!(!line.contains("hush") && line.ends_with(" -n 2"), "{given} became {line}");
        assert_eq!(masked_line(&line), line, "masking again");
        assert!(!masked_text(given).contains("hush"), "{given}");
        let script = ["sh", "-c", given].map(str::to_owned);
        assert!(!masked_command(&script).contains("hush"), "{given}");
        assert_eq!(masked_environment(vec![("TOOL_OPTS".into(), given.into())])[0].1, masked_text(given));
    }
    let blanks = ["tool", "-u", "user:hush hush", "-phush hush", "-n", "2"].map(str::to_owned);
    assert_eq!(masked_command(&blanks), "tool -u user:*** -p*** -n 2");
    for kept in [
        "serve -p 8080 -p8080:80 -p 127.0.0.1:80:80 -p=8080",
        "docker run -u 1000:1000 -u0:0 image",
        "mpirun -ppn 4 -pernode -prefix /opt -prepend-rank a.out",
        "tar -pxf a.tar -pvr",
        "cc -pthread -pipe -print-search-dirs -pedantic a.c",
        "ksp -pc_type gamg -pc_factor_levels 2",
        "python3 -u train.py -u http://host/x --user me",
        "curl -u",
    ] {
        assert_eq!(masked_line(kept), kept);
        let arguments: Vec<String> = kept.split(' ').map(str::to_owned).collect();
        assert_eq!(masked_command(&arguments), kept);
    }
}

proptest! {
    #[test]
    fn no_secret_of_a_short_option_is_left(
        secret in "hush[a-zA-Z0-9!@#%^*+~?_-]{0,20}",
        before in "[a-z./-]{0,8}",
        after in "[a-z0-9 ./-]{0,12}",
    ) {
        for line in [
            format!("tool {before} -p{secret} {after}"),
            format!("tool {before} -u me:{secret} {after}"),
            format!("tool {before} --user=me:{secret} {after}"),
        ] {
            prop_assert!(!masked_line(&line).contains("hush"), "{} became {}", line, masked_line(&line));
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            prop_assert!(!masked_command(&arguments).contains("hush"), "{}", line);
        }
    }
}

#[test]
fn variables_of_any_runtime_are_masked_by_their_names() {
    let masked = masked_environment(vec![
        ("RCCL_PIN".to_owned(), "hush".to_owned()),
        ("SLURM_PASS".to_owned(), "hush".to_owned()),
        ("RCCL_DEBUG".to_owned(), "INFO".to_owned()),
        ("I_MPI_PIN".to_owned(), "1".to_owned()),
    ]);
    let values: Vec<&str> = masked.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["***", "***", "INFO", "1"]);
}

#[test]
fn recorded_lines_are_masked_by_their_arguments() {
    let masked = [
        "p --password \"hush hush\" -n 2",
        "p --password='hush b hush' -n 2",
        "p --password 'hush'\"'\"'s hush' -n 2",
        "p --token \"$(echo hush)\" -n 2",
        "p --token $(echo hush) -n 2",
        "p --token `echo hush` -n 2",
        "p --password\thush -n 2",
        "sh -c 'p --password \"hush hush\" -n 2'",
        "p --config '{\"password\": \"hush\"}' -n 2",
        "p --config {\"password\": \"hush\"} -n 2",
        "p Authorization: Basic hush -n 2",
        "p -H \"Authorization: Basic hush\" -n 2",
        "p -H Authorization: Basic hush -n 2",
        "p X-Api-Key: hush -n 2",
        "p -H 'X-Vault-Token: hush' -n 2",
        "p https://hush@host/x -n 2",
        "p https://host/x?a=1&sig=hush&b=2 -n 2",
        "p https://host/x?signature=hush -n 2",
        "p https://host/x?token=hush&key=hush -n 2",
        "p https://host/x?password=hush&X-Amz-Signature=hush -n 2",
        "p https://hooks.slack.com/services/hush/hush/hush -n 2",
        "p --pwd hush -n 2",
        "p --pw hush --pass hush --bearer hush --psk hush --proxy-user u:hush -n 2",
        "p --Token:hush /password:hush token:hush -n 2",
        "curl -su user:hush http://h -n 2",
        "curl -b hush -u u:hush -n 2",
        "curl --user=u:hush -n 2",
        "curl --user=\"u:hush hush\" -n 2",
        "curl -H Authorization:hush -n 2",
        "curl -HAuthorization:hush -sHProxy-Authorization:hush -n 2",
        "curl --header=Authorization:hush --header Authorization:hush -n 2",
        "curl --header=Authorization:Bearer hush -n 2",
        "curl -H Authorization:Basic hush -n 2",
        "curl -H 'Authorization:Token hush' -H Cookie:a=hush -n 2",
        "mpirun -genv HF_TOKEN hush -n 2",
        "mpiexec -genv HF_TOKEN=hush -x MY_SECRET=hush -n 2",
        "wandb login hush -n 2",
        "wandb login --host https://h hush -n 2",
        "vault login hush -n 2",
        "htpasswd -b f u hush -n 2",
        "htpasswd -cb f u hush -n 2",
        "htpasswd -nb u hush -n 2",
        "smbclient -U u%hush -n 2",
        "openssl enc -pass pass:hush -n 2",
        "openssl rsa -passin pass:hush -n 2",
        "sqlcmd -P hush -n 2",
        "aws configure set aws_secret_access_key hush -n 2",
        "python3 -c \"os.environ['HF_TOKEN']='hush'\" -n 2",
        "p Server=a;Uid=u;Pwd=hush;X=1 -n 2",
        "p pw=hush -n 2",
        "env DBPW=hush BEARER=hush GH_PAT=hush AZ_STORAGE_CONNECTION_STRING=hush -n 2",
    ];
    for given in masked {
        let line = masked_line(given);
        assert!(!line.contains("hush"), "{given} became {line}");
        assert!(
            line.contains(MASK) && line.trim_end_matches('\'').ends_with(" -n 2"),
            "{given} became {line}"
        );
        assert_eq!(masked_line(&line), line, "masking again");
        assert!(!masked_text(given).contains("hush"), "{given} became {}", masked_text(given));
    }
    let kept = [
        "serve -p 8080",
        "env PWD=/users/u OLDPWD=/x a.out",
        "apptainer exec --pwd /work image a.out",
        "a --n-tokens 512 --max-tokens=8 tokenizer.json",
        "x264 --pass 2 --two-pass on",
        "mpirun -x HF_TOKEN python3 train.py -np 4",
        "mpirun -genv OMP_NUM_THREADS 4 -genv I_MPI_PIN 1 a.out",
        "git clone https://git@host/r ssh://me@host/r",
        "docker run -v secret:/run/x image/token:latest auth-token/x:1",
        "curl -s -o out -b",
        "it's a line that's kept  with\ttabs",
        "python3 -c 'print(\"a b\")'",
        "a.out --x \"a b\" --y='c d' host:80 http://h/?a=1&b=2",
        "a --basic x Basic y --signature f --pin-memory --skip 3",
        "openssl x509 -in a.pem",
    ];
    for given in kept {
        assert_eq!(masked_line(given), given);
        assert_eq!(masked_text(given), given);
    }
    assert_eq!(masked_line("p --keys a,b -n 2"), "p --keys *** -n 2");
}

#[test]
fn variables_of_secrets_are_whole_words() {
    let secret = "GH_PAT BEARER PW DBPW ROOT_PW AWS_SK HMAC OTP PIN CARD_PIN A_MFA_B AZ_SAS_URL SQL_CONNECTION_STRING \
        SIGNATURE SALT NETRC VAULT_UNSEAL_1 REFRESH_TOK LOGIN RCCL_PIN NCCL_PIN SLURM_PSK HIP_PAT OMPI_OTP OMP_PIN";
    for name in secret.split_whitespace() {
        assert!(is_secret_variable(name), "{name}");
    }
    let harmless = "OMP_NUM_THREADS PWD OLDPWD PATH MIOPEN_FIND_MODE ROCR_VISIBLE_DEVICES PINNED_MEMORY \
        PIN_MEMORY TEST_SKIP HOSTNAME HOST LOGNAME LOGIN_NODE I_MPI_PIN I_MPI_PIN_DOMAIN LD_LIBRARY_PATH PATTERN \
        SASS_HOME SALTED MASK RISK_LEVEL SHELL";
    for name in harmless.split_whitespace() {
        assert!(!is_secret_variable(name), "{name}");
    }
}

#[test]
fn values_of_variables_are_masked_like_command_lines() {
    let key = "-----BEGIN RSA PRIVATE KEY-----\nhush\nhush\n-----END RSA PRIVATE KEY-----\n";
    assert_eq!(masked_text(key), "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\n");
    assert_eq!(masked_text(&masked_text(key)), masked_text(key));
    assert_eq!(masked_text("--lr 1 --password hush"), "--lr 1 --password ***");
    assert_eq!(masked_text("Server=a;Pwd=hush;X=1"), "Server=a;Pwd=***;X=1");
    let public = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----";
    assert_eq!(masked_text(public), public);
}

#[test]
fn long_hostile_texts_take_no_long_time() {
    let started = std::time::Instant::now();
    for part in [
        "a",
        "=",
        ":",
        "a=",
        "a:",
        "key=",
        "key=\"",
        "--key ",
        "--key \"",
        "--key $( ",
        "://",
        "://a:",
        "http://@",
        " ",
        "'",
        "\"",
        "\\",
        "\\\"",
        "`",
        "(",
        "-",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "Bearer ",
        "curl ",
        "curl -u ",
        "-u $( ",
        "-u '",
        "-u a:b",
        "-pxxxx",
        "-pxxxx $(",
        "wandb login ",
        "htpasswd -b ",
        "Cookie: a; ",
        "x]=",
        "/",
        "set key ",
        "\u{e9}",
        "--pass ",
    ] {
        let text = part.repeat((1 << 20) / part.len());
        assert!(masked_line(&text).len() <= 2 * text.len());
        let _ = masked_text(&text);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn options_that_begin_like_a_password_are_masked_with_their_value() {
    for option in ["-password", "-passphrase", "-private_key", "-proxy-pass", "-passwd", "-postgres-password"]
    {
        let arguments = ["run", option, "ZqA1xx", "train.py"].map(str::to_owned);
        let masked = masked_command(&arguments);
        assert!(!masked.contains("ZqA1xx"), "{masked}");
        let line = masked_line(&arguments.join(" "));
        assert!(!line.contains("ZqA1xx") && line.ends_with("train.py"), "{line}");
    }
    for option in ["--pin", "--db-pin", "--otp", "--gh-pat", "--salt"] {
        assert!(!masked_line(&format!("run {option} 4711xx")).contains("4711xx"), "{option}");
    }
    assert_eq!(masked_line("gmx mdrun -pin on -ntomp 4"), "gmx mdrun -pin on -ntomp 4");
}
