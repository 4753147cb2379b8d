//! The manifests of `deploy/` fit the published schemas, and agree with each other and with the gateway.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize as _;
use serde_yaml_ng::Value;

use crate::harness::dockerfile::Dockerfile;
use crate::harness::sources::read;
use crate::harness::{Backend, Gateway, binary, everything_to, tools};

const MANIFESTS: [&str; 2] = ["kubernetes.yaml", "kubernetes-servicemonitor.yaml"];

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn manifest(name: &str) -> String {
    read(&repository("deploy").join(name))
}

/// The objects of all manifests.
fn objects() -> Vec<Value> {
    let parse = |text: &str| -> Vec<Value> {
        let documents = serde_yaml_ng::Deserializer::from_str(text);
        documents.map(|document| Value::deserialize(document).expect("YAML")).collect()
    };
    MANIFESTS.iter().flat_map(|name| parse(&manifest(name))).collect()
}

/// The object of this kind and name.
#[track_caller]
fn object(kind: &str, name: &str) -> Value {
    let found =
        objects().into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn pod() -> Value {
    object("Deployment", "tollgate")["spec"]["template"].clone()
}

fn container() -> Value {
    pod()["spec"]["containers"][0].clone()
}

fn configuration() -> String {
    object("ConfigMap", "tollgate")["data"]["gateway.toml"].as_str().expect("text").to_owned()
}

/// What the schemas say of these manifests.
fn check(manifests: &[PathBuf]) -> Output {
    let script = repository("tests/kubernetes/check.py");
    tools::kubernetes_schemas().arg(script).args(manifests).output().expect("Python starts")
}

#[test]
fn the_manifests_fit_the_published_schemas() {
    let output = check(&MANIFESTS.map(|name| repository("deploy").join(name)));
    let lines = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{lines}{}", String::from_utf8_lossy(&output.stderr));
    let expected: Vec<String> = objects()
        .iter()
        .map(|object| {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            format!("{} {}: good", text(&object["kind"]), text(&object["metadata"]["name"]))
        })
        .collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_wrong_field_does_not_fit_the_schemas() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let changes = [
        ("kubernetes.yaml", "sleep: { seconds: 5 }", "sleep: { second: 5 }"),
        ("kubernetes.yaml", "maxUnavailable: 1\n", "maxUnavalable: 1\n"),
        ("kubernetes.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: yes please"),
        ("kubernetes-servicemonitor.yaml", "interval:", "intervall:"),
    ];
    let files = changes.map(|(name, good, bad)| {
        let text = manifest(name);
        assert!(text.contains(good), "{name}: {good}");
        let file = directory.path().join(format!("{}.yaml", bad.len()));
        std::fs::write(&file, text.replace(good, bad)).expect("it can be written");
        file
    });
    let output = check(&files);
    let lines = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{lines}{}", String::from_utf8_lossy(&output.stderr));
    for word in
        ["'seconds' is a required property", "'maxUnavalable' was", "'yes please' is not", "'intervall' was"]
    {
        assert!(lines.contains(word), "`{word}` is not in\n{lines}");
    }
}

#[test]
fn the_configuration_passes_the_strict_check() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, configuration()).expect("it can be written");
    let mut command = Command::new(binary());
    command.args(["check", "--strict", "-c"]).arg(file);
    for (index, variable) in variables().into_iter().enumerate() {
        command.env(variable, format!("secret {index}"));
    }
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}

/// The environment variables of the container, which are all tokens of the secret.
fn variables() -> Vec<String> {
    let variables = container()["env"].as_sequence().expect("variables").clone();
    variables.iter().map(|variable| variable["name"].as_str().expect("text").to_owned()).collect()
}

/// The key in the secret `tollgate-admin` that a variable comes from.
fn key_of_secret(variable: &str) -> String {
    let variables = container()["env"].as_sequence().expect("variables").clone();
    let found = variables.iter().find(|found| found["name"] == variable).expect("the variable").clone();
    let source = &found["valueFrom"]["secretKeyRef"];
    assert_eq!(source["name"], "tollgate-admin");
    source["key"].as_str().expect("text").to_owned()
}

#[test]
fn the_deployment_agrees_with_its_configuration() {
    let toml: toml::Table = configuration().parse().expect("TOML");
    let (container, pod) = (container(), pod()["spec"].clone());
    let ports: Vec<String> = container["ports"]
        .as_sequence()
        .expect("ports")
        .iter()
        .map(|port| format!("0.0.0.0:{}", port["containerPort"].as_u64().expect("a number")))
        .collect();
    let (listen, admin) = (&toml["server"]["listen"][0], &toml["admin"]);
    assert_eq!(ports, [listen.as_str().expect("text"), admin["listen"].as_str().expect("text")]);
    let monitoring = &admin["tokens"]["monitoring"];
    assert_eq!(monitoring["may"].as_array().expect("rights"), &["read".into()]);
    let named = [&admin["token_env"], &monitoring["token_env"]].map(|name| name.as_str().expect("text"));
    assert_eq!(variables(), named);
    let head = manifest("kubernetes.yaml");
    for variable in named {
        let key = key_of_secret(variable);
        assert!(head.contains(&format!("--from-literal={key}=")), "the command at the head makes no `{key}`");
    }
    let drain = toml["server"]["drain_timeout"].as_str().and_then(|text| text.strip_suffix('s'));
    let drain: u64 = drain.and_then(|seconds| seconds.parse().ok()).expect("seconds");
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().expect("seconds");
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(drain + sleep));
}

#[test]
fn the_deployment_runs_the_image_with_few_rights() {
    let (container, pod) = (container(), pod()["spec"].clone());
    let manifest: toml::Table = read(&repository("Cargo.toml")).parse().expect("TOML");
    let version = manifest["package"]["version"].as_str().expect("text");
    assert_eq!(container["image"].as_str(), Some(&*format!("tollgate:{version}")));
    assert_eq!(container["args"][0].as_str(), Some(&*Dockerfile::of_the_repository().words("CMD")[0]));
    let mount = &container["volumeMounts"][0];
    assert_eq!(
        (mount["mountPath"].as_str(), mount["readOnly"].as_bool()),
        (Some("/etc/tollgate"), Some(true))
    );
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "tollgate");

    let user = Dockerfile::of_the_repository().only("USER").to_owned();
    let security = &pod["securityContext"];
    let [uid, gid] = ["runAsUser", "runAsGroup"].map(|key| security[key].as_u64().expect("a number"));
    assert_eq!((security["runAsNonRoot"].as_bool(), user), (Some(true), format!("{uid}:{gid}")));
    assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
    let own = &container["securityContext"];
    assert_eq!(own["readOnlyRootFilesystem"].as_bool(), Some(true));
    assert_eq!(own["allowPrivilegeEscalation"].as_bool(), Some(false));
    assert_eq!(own["capabilities"]["drop"].as_sequence().expect("a list"), &[Value::from("ALL")]);
}

#[test]
fn all_selectors_find_the_pods_and_all_ports_are_theirs() {
    let labels = pod()["metadata"]["labels"].clone();
    let ports: Vec<Value> =
        container()["ports"].as_sequence().expect("ports").iter().map(|port| port["name"].clone()).collect();
    assert_eq!(ports, ["http", "admin"]);
    let deployment = object("Deployment", "tollgate")["spec"].clone();
    let policy = object("NetworkPolicy", "tollgate")["spec"].clone();
    let services = ["tollgate", "tollgate-admin"].map(|name| object("Service", name));
    for selector in [
        &deployment["selector"]["matchLabels"],
        &deployment["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        &object("PodDisruptionBudget", "tollgate")["spec"]["selector"]["matchLabels"],
        &policy["podSelector"]["matchLabels"],
        &services[0]["spec"]["selector"],
        &services[1]["spec"]["selector"],
    ] {
        assert_eq!(*selector, labels);
    }
    let target = |service: &Value| service["spec"]["ports"][0]["targetPort"].clone();
    assert_eq!(services.each_ref().map(target), ["http", "admin"].map(Value::from));
    let admitted = |rule: usize| policy["ingress"][rule]["ports"][0]["port"].clone();
    assert_eq!([admitted(0), admitted(1)], ["http", "admin"].map(Value::from));
    assert!(policy["ingress"][0].get("from").is_none() && policy["ingress"][1].get("from").is_some());

    let monitor = object("ServiceMonitor", "tollgate")["spec"].clone();
    assert_eq!(monitor["selector"]["matchLabels"], services[1]["metadata"]["labels"]);
    assert_ne!(monitor["selector"]["matchLabels"], services[0]["metadata"]["labels"]);
    let endpoint = &monitor["endpoints"][0];
    assert_eq!(endpoint["port"], services[1]["spec"]["ports"][0]["name"]);
    let credentials = &endpoint["authorization"]["credentials"];
    assert_eq!(credentials["name"], "tollgate-admin");
    assert_eq!(credentials["key"].as_str(), Some(&*key_of_secret("TOLLGATE_MONITORING_TOKEN")));
}

#[test]
fn the_probes_need_no_token_and_the_metrics_that_of_the_monitor() {
    let toml = "[admin]\nlisten = \"0.0.0.0:0\"\ntoken_env = \"TOLLGATE_ADMIN_TOKEN\"\n\
                [admin.tokens]\nmonitoring = { token_env = \"TOLLGATE_MONITORING_TOKEN\", may = [\"read\"] }";
    let toml = everything_to(&Backend::ok(), toml);
    let gateway = Gateway::start_in(&toml, &[], &[("TOLLGATE_MONITORING_TOKEN", "to be read")]);
    let container = container();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &container[probe]["httpGet"];
        assert_eq!(probe["port"], "admin");
        gateway.admin(probe["path"].as_str().expect("a path")).expect(200);
    }
    let endpoint = object("ServiceMonitor", "tollgate")["spec"]["endpoints"][0].clone();
    let path = endpoint["path"].as_str().expect("a path");
    gateway.admin(path).expect(401);
    let scheme = endpoint["authorization"]["type"].as_str().expect("text");
    let fields = format!("authorization: {scheme} to be read\r\n");
    crate::harness::get_with(gateway.admin_addr(), path, &fields).expect(200);
}
