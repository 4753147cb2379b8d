# syntax=docker/dockerfile:1
# The gateway with nothing beside it: no shell, no package manager. Mount a file of your own over
# /etc/tollgate/gateway.toml; without one the gateway echoes.
#   docker build -t tollgate . && docker run --rm -p 8080:8080 tollgate

FROM rust:1.95-slim-bookworm AS build
# The allocator is built with make; the authorities are copied into the image.
RUN apt-get update && apt-get install -y --no-install-recommends make ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin tollgate && \
    strip -o /tollgate target/release/tollgate && \
    packaging/image-root /tollgate /image

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
# The release workflow adds the labels `source` and `documentation`, which are addresses of the owner (packaging/owner).
LABEL org.opencontainers.image.title="tollgate" \
      org.opencontainers.image.description="A rate-limiting reverse proxy" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
# Clients of a container come from other addresses than loopback, so the gateway listens on all.
ENV PATH="/usr/bin" \
    TOLLGATE_CONFIG="/etc/tollgate/gateway.toml" \
    TOLLGATE_LISTEN="0.0.0.0:8080"
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# Asks the admin listener; without one, connects to the first listener.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["tollgate", "health"]
ENTRYPOINT ["tollgate"]
CMD ["run"]
