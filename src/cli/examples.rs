//! The examples of each `--help`.

pub(super) const ALL: &str = "\
Examples:
  tollgate init                          write gateway.toml from three questions
  tollgate check                         check gateway.toml, and sum it up
  tollgate test                          run the tests in gateway.test.toml
  tollgate --watch                       start, and reload whenever gateway.toml changes
  tollgate -c /etc/tollgate.toml         start with another file
  tollgate --takeover                    upgrade: take over from the running process
  tollgate explain GET http://api.example.com/search -H 'x-api-key: k1'
  tollgate explain --live GET /search --ip 203.0.113.7
  tollgate replay access.log             what the limits would have refused
  tollgate top                           the dashboard in the terminal

Signals:
  SIGHUP            reload the file; one with faults changes nothing
  SIGUSR1           open the access log's file again, after it was moved away
  SIGUSR2           upgrade: start the binary anew, which takes over
  SIGTERM, SIGINT   drain: requests in flight finish, then exit with 0
                    (a second one exits at once, with 130)

Exit status:
  0  good
  1  failed while running
  2  bad usage or bad configuration

The program log goes to standard error, the access log to standard output or to `file` in [log].
Colours: --color, then CLICOLOR_FORCE, then NO_COLOR, then whether the output is a terminal.";

pub(super) const RUN: &str = "\
Examples:
  tollgate run                           start with gateway.toml
  tollgate run --watch -v                reload whenever the file changes, and log in detail
  tollgate run --takeover                upgrade: take over from the running process";

pub(super) const CHECK: &str = "\
Examples:
  tollgate check                         check gateway.toml, and sum it up
  tollgate check -c /etc/tollgate.toml   check another file
  tollgate check && systemctl reload tollgate";

pub(super) const INIT: &str = "\
Examples:
  tollgate init                          ask, and write gateway.toml
  tollgate init --yes --output -         show what the defaults write
  tollgate init --upstream http://127.0.0.1:3000 --clients api-key --rate '10/s burst 50' --mode enforce";

pub(super) const TEST: &str = "\
Examples:
  tollgate test                          gateway.test.toml, on gateway.toml
  tollgate test -c new.toml tests/       all *.toml in tests, on another configuration
  tollgate test --filter login
  tollgate test --json | jq -r '.[] | select(.passed | not) | .explain'";

pub(super) const EXPLAIN: &str = "\
Examples:
  tollgate explain GET http://api.example.com/search -H 'x-api-key: k1'
  tollgate explain --live GET /search --ip 203.0.113.7
  tollgate explain --json GET /search | jq -r .route.name
  tollgate explain descriptors http://shop/generic_key=search,remote_address=192.0.2.7";

pub(super) const REPLAY: &str = "\
Examples:
  tollgate replay access.log             with gateway.toml
  tollgate replay -c new.toml --against gateway.toml /var/log/nginx/access.log*
  zcat access.log.*.gz | tollgate replay --host shop.example.com --reorder 5min
  tollgate replay --report out.html --fail-above 0.1% access.log";

pub(super) const SUGGEST: &str = "\
Examples:
  tollgate suggest access.log            by client address, for each route of gateway.toml
  tollgate suggest --key header:x-api-key --keep 0.9999 access.log*
  tollgate suggest --algorithm sliding-window --report out.html access.log";

pub(super) const IMPORT: &str = "\
Examples:
  tollgate import envoy-ratelimit ratelimit.yaml > limits.toml
  tollgate import envoy-ratelimit config/*.yaml  files that are read together
  kubectl get configmap ratelimit -o 'jsonpath={.data.config\\.yaml}' | tollgate import envoy-ratelimit -";

pub(super) const SCHEMA: &str = "\
Examples:
  tollgate schema > gateway.schema.json
  tollgate schema --tests > test.schema.json
  tollgate schema | jq '.properties | keys'";

pub(super) const HEALTH: &str = "\
Examples:
  tollgate health && echo alive
  tollgate health -c /etc/tollgate.toml  of the gateway that runs with that file
  tollgate health --url http://127.0.0.1:9900  without a file
  tollgate health --url https://gateway:9900 --ca ca.pem";

pub(super) const TOP: &str = "\
Examples:
  tollgate top                           the gateway that runs with gateway.toml
  ssh -L 9900:127.0.0.1:9900 gateway     then: tollgate top --url http://127.0.0.1:9900
  tollgate top --url https://gateway:9900 --ca ca.pem
  tollgate top --once | head -20         one snapshot as text";

pub(super) const COMPLETIONS: &str = "\
Examples:
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

pub(super) const MAN: &str = "\
Examples:
  tollgate man | man -l -                read it
  tollgate man > ~/.local/share/man/man1/tollgate.1";
