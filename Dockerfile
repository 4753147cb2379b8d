# syntax=docker/dockerfile:1
# The gateway in a slim image. Mount your own file over /etc/tollgate/gateway.toml; without one it echoes.
#   docker build -t tollgate . && docker run --rm -p 8080:8080 tollgate

FROM rust:1.95-slim-bookworm AS build
# The allocator is built with it.
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin tollgate && cp target/release/tollgate /tollgate

FROM debian:bookworm-slim
# The authorities by which certificates of `https://` upstreams are checked.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
RUN useradd --system --no-create-home --shell /usr/sbin/nologin --uid 10001 tollgate
COPY --from=build /tollgate /usr/local/bin/tollgate
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/tollgate/
COPY <<'TOML' /etc/tollgate/gateway.toml
# In a container the outside is another address, so listen on all of them. The health check asks the admin listener; without
# one it connects to the first listener.
[server]
listen = ["0.0.0.0:8080"]

[admin]
listen = "127.0.0.1:9900"

[upstreams]
demo = "builtin:echo"

[[routes]]
name     = "demo"
path     = "/*"
upstream = "demo"
limits   = ["per-client"]

[limits.per-client]
algorithm = "token-bucket"
key       = "ip"
rate      = "10/s"
burst     = 50
TOML
USER 10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["tollgate", "health", "-c", "/etc/tollgate/gateway.toml"]
ENTRYPOINT ["tollgate"]
CMD ["run", "-c", "/etc/tollgate/gateway.toml"]
