//! Faults of files of consumers, of tiers and of auths: all at once, each with its place.

use super::{CSV, Files};

/// A configuration with one auth, `keys`, whose keys are in `consumers.csv`. `route`: lines of its only route. `rest`:
/// further tables.
fn configuration(route: &str, rest: &str) -> String {
    format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"consumers.csv\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\n{route}\n{rest}"
    )
}

/// `PLACE: MESSAGE` of each fault that `check` reports, without the column.
#[track_caller]
fn faults(files: &Files, toml: &str) -> Vec<String> {
    let (status, printed) = files.check(toml);
    assert_eq!(status, 2, "{printed}");
    reported(&printed, "error: ")
}

/// The same of the warnings in a report without faults.
#[track_caller]
fn warnings(files: &Files, toml: &str) -> Vec<String> {
    let (status, printed) = files.check(toml);
    assert_eq!(status, 0, "{printed}");
    reported(&printed, "warning: ")
}

fn reported(printed: &str, severity: &str) -> Vec<String> {
    let lines: Vec<_> = printed.lines().collect();
    let place = |line: &str| {
        let place = line.trim_start().strip_prefix("--> ").unwrap_or("?").to_owned();
        place.strip_prefix("gateway.toml:").map_or(place.clone(), |_| "gateway.toml".to_owned())
    };
    let pairs = lines.windows(2).filter_map(|pair| Some((pair[0].strip_prefix(severity)?, place(pair[1]))));
    pairs.map(|(message, place)| format!("{place}: {message}")).collect()
}

#[track_caller]
fn csv_faults(csv: impl AsRef<[u8]>, expected: &[&str]) {
    let files = Files::with_consumers(csv);
    assert_eq!(faults(&files, &configuration("", "")), expected);
}

#[test]
fn all_faulty_lines_are_reported_at_once() {
    let long = "n".repeat(257);
    let csv = format!(
        "key,name,tier,org\n\
         key-0001,acme,pro,x\n\
         key-0001,zeta,pro,x\n\
         key-0002,,pro,x\n\
         key-0003,acme\n\
         key-0004,acme,pro,x,y\n\
         sha256:abc,beta,,\n\
         key-0005,acme,free,\n\
         ,gamma,,\n\
         key-0006,{long},,\n\
         key-0007,tiered,{long},\n\
         \"two\nlines\",delta,,\n\
         key-0008,bell\u{7},,\n\
         key-0009,fine,,\n"
    );
    csv_faults(
        csv,
        &[
            "consumers.csv:3: this key stands in line 2 too",
            "consumers.csv:4: the name is empty",
            "consumers.csv:5: this line has 2 values, the header line names 4 columns",
            "consumers.csv:6: this line has 5 values, the header line names 4 columns",
            "consumers.csv:7: this is no SHA-256 of a key",
            "consumers.csv:8: this consumer has another tier in line 2",
            "consumers.csv:9: no request can carry this key",
            "consumers.csv:10: this name cannot be sent to a backend",
            "consumers.csv:11: this tier cannot be sent to a backend",
            "consumers.csv:12: no request can carry this key",
            "consumers.csv:14: this name cannot be sent to a backend",
        ],
    );
}

#[test]
fn a_name_may_be_256_bytes_long_once_it_is_encoded() {
    let files = Files::with_consumers(format!(
        "key,name\nkey-0001,{}\nkey-0002,{}\n",
        "n".repeat(256),
        "%".repeat(85)
    ));
    assert_eq!(warnings(&files, &configuration("", "")), [""; 0]);
    let long = format!("key,name\nkey-0001,{}\nkey-0002,{}\n", "é".repeat(43), "%".repeat(86));
    let message = "this name cannot be sent to a backend";
    csv_faults(long, &[&format!("consumers.csv:2: {message}"), &format!("consumers.csv:3: {message}")]);
}

#[test]
fn a_header_line_names_each_column_once() {
    csv_faults("", &["consumers.csv:1: the file of consumers is empty"]);
    csv_faults("\n\n", &["consumers.csv:1: the file of consumers is empty"]);
    let missing = [
        "consumers.csv:1: the header line names no column `key`",
        "consumers.csv:1: the header line names no column `name`",
    ];
    csv_faults("key-0001,acme,pro\nkey-0002,zeta,free\n", &missing);
    csv_faults("key;name\nkey-0001;acme\n", &missing);
    csv_faults("Key,name\nkey-0001,acme\n", &missing[..1]);
    csv_faults(
        "key,name,,name,tier,tier\n",
        &[
            "consumers.csv:1: column 3 of the header line has no name",
            "consumers.csv:1: column 4 of the header line has the name of another",
            "consumers.csv:1: column 6 of the header line has the name of another",
        ],
    );
    let many =
        format!("key,name,{}\n", (0..70).map(|number| format!("c{number}")).collect::<Vec<_>>().join(","));
    csv_faults(many, &["consumers.csv:1: the header line names too many columns"]);
}

#[test]
fn a_file_that_is_not_utf8_names_its_line() {
    csv_faults(
        b"key,name\nkey-0001,acme\nkey-0002,M\xfcller\n",
        &["consumers.csv:3: this line is not UTF-8"],
    );
    csv_faults(b"\xff\xfek\x00e\x00y\x00", &["consumers.csv:1: this line is not UTF-8"]);
}

#[test]
fn a_hash_and_its_key_are_one_key() {
    // printf %s key-0001 | sha256sum
    let digits = "1c1994d97561115e8778171182abce03a67f730bc1d2c84cbd391fe3e989cb1b";
    csv_faults(
        format!("key,name\nkey-0001,acme\nsha256:{digits},zeta\nsha256:{},eve\n", digits.to_uppercase()),
        &["consumers.csv:3: this key stands in line 2 too", "consumers.csv:4: this key stands in line 2 too"],
    );
}

#[test]
fn what_is_no_key_is_a_fault_of_its_line() {
    csv_faults(
        "name,key\n\
         short,1234567\n\
         bcrypt,$2y$10$abcdefghijklmnopqrstuuv.PdO0MSkTZcFkE1y7KGtkdgBhTVUHO\n\
         sha1,sha1:a94a8fe5ccb19ba61c4c0873d391e987982fbbd3\n\
         base64,sha256:n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=\n\
         comment,#key-0001\n\
         quoted,\"#key-0002\"\n\
         # comment,key-0003\n\
         good,key-0004\n",
        &[
            "consumers.csv:2: this key has fewer than 8 characters, so it could be guessed",
            "consumers.csv:3: this is a hash of another form than `sha256:` and 64 hexadecimal digits",
            "consumers.csv:4: this is a hash of another form than `sha256:` and 64 hexadecimal digits",
            "consumers.csv:5: this is no SHA-256 of a key",
            "consumers.csv:6: this key begins with `#`, as a comment line does",
            "consumers.csv:7: this key begins with `#`, as a comment line does",
        ],
    );
}

#[test]
fn hashes_of_other_programs_are_no_keys_and_others_are() {
    let hashes = [
        "$2y$10$abcdefghijklmnopqrstuuv.PdO0MSkTZcFkE1y7KGtkdgBhTVUHO",
        "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$aGFzaA",
        "$6$salt$hash",
        "$apr1$salt$hash",
        "{SHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=",
        "{SSHA}fEqNCco3Yq9h5ZUglD3CZJT4lBs=",
        "{bcrypt}$2a$10$abcdefghij",
        "sha1:a94a8fe5ccb19ba61c4c0873d391e987982fbbd3",
        "SHA-256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sha256$9f86d081884c7d65",
        "sha512:ee26b0dd4af7e749aa1a8ee3c10ae992",
        "md5:098f6bcd4621d373cade4e832627b4f6",
        "pbkdf2_sha256$260000$salt$hash",
        "scrypt:32768:8:1$salt$hash",
        "bcrypt:whatever",
        "sha256-n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
    ];
    let keys = [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sk_live_51H8sha256",
        "acme:5d1c9b7e0a42",
        "shadow-5d1c9b7e0a42",
        "sha-5d1c9b7e0a42",
        "$100-a-month",
        "{acme}-5d1c9b7e0a42",
        "hashicorp:5d1c9b7e0a42",
        "cryptoshop:5d1c9b7e0a42",
        "schlüssel",
        "12345678",
    ];
    let rows = hashes.iter().chain(&keys).enumerate();
    let rows: String = rows.map(|(number, key)| format!("\"{key}\",name-{number}\n")).collect();
    let message = "this is a hash of another form than `sha256:` and 64 hexadecimal digits";
    let expected: Vec<_> =
        (0..hashes.len()).map(|number| format!("consumers.csv:{}: {message}", number + 2)).collect();
    csv_faults(format!("key,name\n{rows}"), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_tier_under_another_name_is_a_warning() {
    let message = "the header line names no column `tier`, but one that is spelled in another way";
    for column in ["Tier", "tiers", "TIER"] {
        let files = Files::with_consumers(format!("key,name,{column}\nkey-0001,acme,pro\n"));
        assert_eq!(warnings(&files, &configuration("", "")), [format!("consumers.csv:1: {message}")]);
    }
    let files = Files::with_consumers("key,name,Tier,tier\nkey-0001,acme,x,pro\n");
    assert_eq!(warnings(&files, &configuration("", "")), [""; 0]);
}

/// What spreadsheets and other systems write.
#[test]
fn files_of_common_programs_are_read() {
    let files = Files::new();
    for csv in [
        "\u{feff}key,name,tier\r\nkey-0001,\"acme, \"\"inc\"\"\",pro\r\n\r\nkey-0002,zeta,\r\n",
        "tier,name,key\npro,\"acme, \"\"inc\"\"\",key-0001\n,zeta,key-0002",
        " key , name , tier \n key-0001 ,\"acme, \"\"inc\"\"\", pro \n\"key-0002\",\"zeta\",\"\"\n",
    ] {
        files.write("consumers.csv", csv);
        let output =
            files.tollgate(&configuration("", ""), &["explain", "GET", "/", "-H", "x-api-key: key-0001"]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = "consumer  `acme, \"inc\"`, tier `pro`: named by `keys`\n";
        assert!(printed.contains(line), "{csv}\n---\n{printed}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_file_without_consumers_is_a_warning() {
    let files = Files::with_consumers("key,name\n");
    assert_eq!(warnings(&files, &configuration("", "")), ["consumers.csv:1: the file names no consumer"]);
    // Where all lines are faulty, that is all there is to say.
    let (_, printed) = Files::with_consumers("key,name\nkey-0001\n").check(&configuration("", ""));
    assert!(!printed.contains("names no consumer"), "{printed}");
}

#[test]
fn a_file_with_many_faults_shows_some_and_their_number() {
    let files = Files::with_consumers(format!("key,name\n{}", "k\n".repeat(100_000)));
    let (status, printed) = files.check(&configuration("", ""));
    assert_eq!(status, 2);
    assert!(printed.lines().count() < 1_000, "{} lines", printed.lines().count());
    assert!(printed.contains("more that are not shown"), "{}", &printed[printed.len() - 200..]);
}

#[test]
fn a_file_that_is_missing_is_named_in_the_configuration() {
    let told = faults(&Files::new(), &configuration("", ""));
    assert_eq!(told, ["gateway.toml: cannot read `consumers.csv`: No such file or directory (os error 2)"]);
}

#[test]
fn an_auth_needs_what_its_type_needs() {
    let files = Files::with_consumers(CSV);
    let with = |lines: &str| {
        format!(
            "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\nauth = \"keys\"\n\
             [auth.keys]\n{lines}\n"
        )
    };
    for (lines, expected) in [
        ("", "`[auth.keys]` has no `type`"),
        ("type = \"api-key\"\nfile = \"consumers.csv\"", "`[auth.keys]` has no `from`"),
        ("type = \"api-key\"\nfrom = \"bearer\"", "`[auth.keys]` has no `file`"),
        ("type = \"api-keys\"", "`type` cannot be `api-keys`"),
        ("type = \"basic\"", "`[auth.keys]` has no `file`"),
        ("type = \"forward\"", "`[auth.keys]` has no `url`"),
        ("type = \"forward\"\nurl = \"127.0.0.1:1\"", "is not the URL of a service"),
        ("type = \"forward\"\nurl = \"http://u:p@127.0.0.1\"", "has a user"),
        ("type = \"forward\"\nurl = \"http://127.0.0.1\"\nheaders = [\"host\"]", "the gateway itself"),
        ("type = \"forward\"\nurl = \"http://127.0.0.1\"\nheaders = [\"x-consumer\"]", "the gateway itself"),
        ("type = \"forward\"\nurl = \"http://127.0.0.1\"\nname = \"x-user\"", "is not a field of an answer"),
        ("type = \"forward\"\nurl = \"http://127.0.0.1\"\ncache = \"2h\"", "this is too long"),
        ("type = \"forward\"\nurl = \"http://127.0.0.1\"\non_error = \"ignore\"", "`on_error`"),
        (
            "type = \"api-key\"\nfrom = \"header:authorization\"\nfile = \"consumers.csv\"",
            "`header:authorization`",
        ),
        (
            "type = \"api-key\"\nfrom = \"ip\"\nfile = \"consumers.csv\"",
            "`ip` is not a place of a credential",
        ),
        (
            "type = \"api-key\"\nfrom = \"bearer\"\nfile = \"consumers.csv\"\nrealm = \"a\\\"b\"",
            "cannot be a realm",
        ),
        ("type = \"api-key\"\nfrom = \"bearer\"\nfile = \"consumers.csv\"\nrealm = \"\"", "realm"),
        ("type = \"api-key\"\nfrom = \"bearer\"\nfile = \"consumers.csv\"\nkeys = []", "`keys`"),
        (
            "type = \"api-key\"\nfrom = \"bearer\"\nfile = \"consumers.csv\"\nfailures = \"none\"",
            "there is no limit `none`",
        ),
    ] {
        let told = faults(&files, &with(lines));
        assert!(told.len() == 1 && told[0].contains(expected), "{lines}\n{told:#?}");
    }
}

#[test]
fn a_route_names_auths_that_there_are_and_one_for_each_place() {
    let files = Files::with_consumers(CSV);
    let two = "[auth.two]\ntype = \"api-key\"\nfrom = \"header:X-Api-Key\"\nfile = \"consumers.csv\"\n\
               [auth.three]\ntype = \"api-key\"\nfrom = \"bearer\"\nfile = \"consumers.csv\"\n";
    let toml = configuration("", two)
        .replace("auth = \"keys\"", "auth = [\"keys\", \"two\", \"three\", \"keyz\", \"keys\"]");
    assert_eq!(
        faults(&files, &toml),
        [
            "gateway.toml: `keys` and `two` both read `header:x-api-key`: only the first would ever decide",
            "gateway.toml: there is no auth `keyz`",
            "gateway.toml: this route names the same auth twice",
        ]
    );
    let without = configuration("auth_optional = true\nforward_credentials = false", "")
        .replace("auth = \"keys\"\n", "");
    assert_eq!(
        faults(&files, &without),
        [
            "gateway.toml: `auth_optional` has no effect without `auth`",
            "gateway.toml: `forward_credentials` has no effect without `auth`",
        ]
    );
    let unused = configuration("", two);
    assert_eq!(
        warnings(&files, &unused),
        ["gateway.toml: no route uses the auth `two`", "gateway.toml: no route uses the auth `three`"]
    );
}

#[test]
fn failures_are_counted_by_address_alone() {
    let files = Files::with_consumers(CSV);
    let with = |limit: &str| {
        configuration("", &format!("[limits.wrong]\n{limit}\n"))
            .replace("file = \"consumers.csv\"", "file = \"consumers.csv\"\nfailures = \"wrong\"")
    };
    let by_ip = "gateway.toml: limit `wrong` of `failures` does not count by `ip` alone";
    for key in ["\"consumer\"", "\"global\"", "[\"ip\", \"header:x-api-key\"]"] {
        let limit = format!("algorithm = \"token-bucket\"\nkey = {key}\nrate = \"10/min\"");
        let told = faults(&files, &with(&limit));
        assert_eq!(told, [by_ip], "{key}");
    }
    let leaky = faults(&files, &with("algorithm = \"leaky-bucket\"\nkey = \"ip\"\nrate = \"10/min\""));
    assert_eq!(leaky, ["gateway.toml: limit `wrong` of `failures` is a leaky bucket, which delays"]);
    let places = faults(&files, &with("algorithm = \"concurrency\"\nkey = \"ip\"\nmax = 5"));
    let told =
        "gateway.toml: limit `wrong` of `failures` counts requests in flight, and a failure is over at once";
    assert_eq!(places, [told]);
    let good = with("algorithm = \"gcra\"\nkey = \"ip\"\nrate = \"10/min\"");
    assert_eq!(warnings(&files, &good), [""; 0], "it is used, though no route names it");
}

/// A limit `api` with these lines and tiers.
fn tiers(limit: &str, tiers: &str) -> String {
    configuration(
        "limits = [\"api\"]",
        &format!("[limits.api]\nalgorithm = \"token-bucket\"\nkey = \"consumer\"\n{limit}\n{tiers}\n"),
    )
}

#[test]
fn tiers_have_parameters_of_their_limit() {
    let files = Files::with_consumers("key,name\nkey-0001,acme\n");
    let other_shapes = "[limits.api.tiers.fewer]\nrate = \"1000/min\"\n\
         [limits.api.tiers.more]\nrate = [\"10/min\", \"100/h\", \"1/day\"]\n\
         [limits.api.tiers.other]\nrate = [\"10/s\", \"100/h\"]\n\
         [limits.api.tiers.none]\nunlimited = true\n";
    warnings(&files, &tiers("rate = [\"10/min\", \"100/h\"]", other_shapes));
    let told = faults(
        &files,
        &tiers("rate = \"10/min\"", "[limits.api.tiers.none]\nunlimited = true\nrate = \"1/s\"\nburst = 3\n"),
    );
    let means_nothing =
        |key: &str| format!("gateway.toml: `{key}` means nothing to a tier that is unlimited");
    assert_eq!(told, [means_nothing("rate"), means_nothing("burst")]);
    let told =
        faults(&files, &tiers("rate = \"10/min\"", "[limits.api.tiers.pro]\nqueue = 3\nkey = \"ip\"\n"));
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told.iter().any(|fault| fault.contains("`queue` means nothing to `token-bucket`")), "{told:#?}");
    let window = "[limits.api]\nalgorithm = \"fixed-window\"\nkey = \"consumer\"\nrate = \"10/min\"\n\
                  [limits.api.tiers.pro]\nalign = \"first-request\"\n";
    let told = faults(&files, &configuration("limits = [\"api\"]", window));
    assert_eq!(told, ["gateway.toml: all tiers of a limit have one `align`"]);
}

#[test]
fn a_cost_that_a_tier_could_never_admit_is_a_fault() {
    let files = Files::with_consumers("key,name\nkey-0001,acme\n");
    for (cost, words) in [("5", "costs 5"), ("{ reserve = 4, settle = \"bytes\" }", "reserves 4")] {
        let toml = tiers("rate = \"10/min\"", "[limits.api.tiers.free]\nburst = 3\n")
            .replace("limits = [\"api\"]", &format!("limits = [{{ name = \"api\", cost = {cost} }}]"));
        let told = format!(
            "gateway.toml: route `/*` {words}, but limit `api` holds only 3 for tier `free`, so every request of that tier would be refused"
        );
        assert_eq!(faults(&files, &toml), [told]);
    }
}

/// What the limit writes is inherited. What it does not write follows from the tier's own rate.
#[test]
fn a_tier_inherits_what_its_limit_writes() {
    let files = Files::with_consumers("key,name\nkey-0001,acme\n");
    for (limit, tier, words) in [
        ("rate = \"10/min\"", "rate = \"1000/min\"", "1000 at once, then one every 60 ms"),
        ("rate = \"10/min\"\nburst = 50", "rate = \"1000/min\"", "50 at once, then one every 60 ms"),
        ("rate = \"10/min\"\nburst = 50", "burst = 70", "70 at once, then one every 6 s"),
        ("rate = \"10/min\"\nburst = 50", "", "50 at once, then one every 6 s"),
        ("rate = \"10/min\"", "", "10 at once, then one every 6 s"),
    ] {
        let (status, printed) = files.check(&tiers(limit, &format!("[limits.api.tiers.pro]\n{tier}")));
        let expected = format!("; tier `pro`: {words} (");
        assert!(status == 0 && printed.contains(&expected), "{limit} {tier}\n{printed}");
    }
}

#[test]
fn tiers_and_columns_that_can_not_occur_are_reported() {
    let files = Files::with_consumers(
        "key,name,tier,org\nkey-0001,a,pro,x\nkey-0002,b,gold,\nkey-0003,c,gold,\nkey-0004,d,,\n",
    );
    let pro = "[limits.api.tiers.pro]\nrate = \"1000/min\"";
    assert_eq!(
        warnings(&files, &tiers("rate = \"10/min\"", pro)),
        [
            "gateway.toml: limit `api` has no tier `gold`, the tier of 2 keys of auth `keys`: the limit's own rate applies to them"
        ]
    );
    let declared = tiers("rate = \"10/min\"", &format!("{pro}\n[limits.api.tiers.gold]\n"));
    assert_eq!(warnings(&files, &declared), [""; 0], "an empty tier declares it");
    assert_eq!(
        warnings(&files, &tiers("rate = \"10/min\"", "")),
        [""; 0],
        "a limit without tiers has none to lack"
    );
    let by =
        |key: &str| tiers("rate = \"10/min\"", "").replace("key = \"consumer\"", &format!("key = \"{key}\""));
    assert_eq!(
        faults(&files, &by("consumer:organisation")),
        [
            "gateway.toml: limit `api` counts by the column `organisation`, which no file of consumers on its routes has"
        ]
    );
    assert_eq!(faults(&files, &by("consumer:")).len(), 1);
    assert_eq!(warnings(&files, &by("consumer:org")), [""; 0]);
    let without = tiers("rate = \"10/min\"", "").replace("auth = \"keys\"\n", "");
    let told = warnings(&files, &without);
    assert!(
        told.contains(&"gateway.toml: limit `api` counts by consumer, but route `/*` has no `auth`, so none is ever known there".to_owned()),
        "{told:#?}"
    );
}
