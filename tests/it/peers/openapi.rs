//! schemathesis sends requests made from docs/openapi.json, valid and invalid ones: no response is a 5xx, each is one that
//! the document has, and without the right each is a refusal.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Backend, Client, Gateway, HoldingBackend, tools};

/// What a response must be, and that an invalid request is refused.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,negative_data_rejection,\
                      missing_required_header,unsupported_method,allow_header_conformance";

const RIGHTS: &str = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TOLLGATE_ADMIN_TOKEN\"\n[admin.tokens]\n\
                      none = { token_env = \"NONE\", may = [\"charge:other\"] }\n";

/// A gateway with limits of several kinds, and requests that they have refused.
struct TestedGateway {
    gateway: Gateway,
    holding: HoldingBackend,
    _backend: Backend,
}

impl TestedGateway {
    fn start() -> Self {
        let (backend, holding) = (Backend::ok(), HoldingBackend::start());
        let limit = |name: &str, lines: &str| format!("[limits.{name}]\n{lines}\n");
        let limits = [
            limit("per-client", "algorithm = \"token-bucket\"\nkey = \"ip\"\nrate = \"2/h\"\nburst = 2"),
            limit("stricter", "algorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/h\"\nmode = \"shadow\""),
            limit("places", "algorithm = \"concurrency\"\nkey = \"ip\"\nmax = 5"),
            limit("other", "algorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"9/day\""),
        ];
        let toml = format!(
            "{RIGHTS}[upstreams]\nbackend = \"{}\"\nholding = \"{}\"\n[[routes]]\npath = \"/*\"\n\
             upstream = \"backend\"\nlimits = [\"per-client\", \"stricter\", \"places\"]\n[[routes]]\n\
             path = \"/hold\"\nupstream = \"holding\"\nlimits = [\"other\"]\n[[routes]]\n\
             path = \"/old/*\"\nredirect = {{ to = \"/new/{{*}}\" }}\n{}",
            backend.url(),
            holding.url(),
            limits.concat()
        );
        let gateway = Gateway::start_in(&toml, &[], &[("NONE", "none-secret")]);
        for status in [200, 200, 429] {
            gateway.get("/a").expect(status);
        }
        Self { gateway, holding, _backend: backend }
    }

    /// Goes through the operations with the paths that `choice` chooses.
    #[track_caller]
    fn is_good(&self, checks: &str, token: Option<&str>, choice: &[&str], statuses: &str) {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().expect("a folder");
        let document = folder.path().join("openapi.json");
        std::fs::write(&document, self.document().to_string()).expect("it can be written");
        let mut command = tools::schemathesis();
        command.current_dir(folder.path()).args(["-m", "schemathesis.cli", "run"]).arg(document);
        command.args(["--url", &format!("http://{}/api/v1", self.gateway.admin_addr())]);
        command.args(["--checks", checks, "--seed", "1", "--no-color"]);
        command.args(["--generation-database", "none", "--continue-on-failure", "--warnings", "off"]);
        command.args(choice);
        command.args(token.map(|token| format!("--header=authorization:Bearer {token}")));
        command.env("PYTHONPATH", root.join("tests/api")).env("SCHEMATHESIS_HOOKS", "checks");
        let output = command.env("EXPECTED_STATUSES", statuses).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The document with names that the gateway has, and others.
    fn document(&self) -> Value {
        let text = std::fs::read_to_string("docs/openapi.json").expect("it is there");
        let mut document: Value = serde_json::from_str(&text).expect("JSON");
        let named = |name: &str| match name {
            "limit" => Some(json!(["per-client", "stricter", "places", "none"])),
            "key" => Some(json!(["127.0.0.1", "id:9f86d081884c7d659a2feaa0c55ad015", "id:1", "a,b"])),
            "upstream" => Some(json!(["backend", "holding", "none"])),
            "server" => Some(json!([self.holding.url().trim_start_matches("http://"), "none"])),
            _ => None,
        };
        let paths = document["paths"].as_object_mut().expect("paths").values_mut();
        for operation in paths.flat_map(|path| path.as_object_mut().expect("methods").values_mut()) {
            for parameter in operation["parameters"].as_array_mut().expect("a list") {
                if let Some(names) = parameter["name"].as_str().and_then(named) {
                    parameter["schema"] = json!({ "type": "string", "enum": names });
                }
            }
        }
        document
    }
}

#[test]
fn with_all_rights_each_response_is_one_of_the_document() {
    let mut tested = TestedGateway::start();
    let is_good = |tested: &TestedGateway, choice: [&str; 2]| {
        let choice = [choice[0], choice[1], "--max-examples", "30"];
        tested.is_good(CHECKS, Some("test-token"), &choice, "");
    };
    is_good(&tested, ["--exclude-operation-id", "Drain"]);
    // With a request in flight, the process does not end.
    let mut held = Client::connect(tested.gateway.addr());
    held.write("GET /hold HTTP/1.1\r\nhost: localhost\r\n\r\n");
    tested.holding.holds(1);
    is_good(&tested, ["--include-operation-id", "Drain"]);
    assert!(tested.gateway.alive());
    tested.holding.release("/hold");
    held.read().expect(200);
    assert!(tested.gateway.wait_for_exit().success(), "{}", tested.gateway.stderr());
}

#[test]
fn without_rights_each_operation_is_refused() {
    let tested = TestedGateway::start();
    let checks = "expected_status,response_schema_conformance,content_type_conformance";
    // With a token, some requests are sent without it, and some by a method that no operation has.
    for (token, statuses) in [(None, "401"), (Some("wrong"), "401"), (Some("none-secret"), "401 403 405")] {
        tested.is_good(checks, token, &["--max-examples", "5"], statuses);
    }
    let log = tested.gateway.stderr();
    assert!(!log.contains("at the admin listener") && !log.contains("the admin API"), "{log}");
}
