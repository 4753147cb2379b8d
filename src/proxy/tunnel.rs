//! An upgraded connection (RFC 9110 §7.8): bytes pass both ways until one side closes or the worker is drained.

use tokio::io::{AsyncWriteExt as _, copy_bidirectional};

use super::gate::SharedGate;
use crate::upstream::connection::Lease;

/// Joins client and backend. What the client sent behind its request still waits at the gate.
pub(crate) async fn run(mut client: SharedGate, lease: Lease) {
    let Some((mut backend, greeting)) = lease.upgraded().await else { return };
    let joined = async {
        client.write_all(&greeting).await?;
        copy_bidirectional(&mut client, &mut backend).await
    };
    // Either side may break the tunnel off at any time; that is how tunnels end.
    let _ = joined.await;
}
