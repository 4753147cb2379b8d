//! Which certificate a client is shown.

use std::sync::Arc;

use rustls::ClientConfig;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::harness::{Client, Gateway};

/// The common name of the certificate that a client with the server name `name` gets.
pub(crate) fn shown(gateway: &Gateway, config: &Arc<ClientConfig>, name: &str) -> String {
    let client = Client::connect_tls(gateway.addr(), config, name);
    common_name(&client)
}

pub(crate) fn common_name(client: &Client) -> String {
    let shown = client.tls().peer_certificates().expect("a certificate")[0].clone();
    let (_, parsed) = X509Certificate::from_der(&shown).expect("a certificate");
    let name = parsed.subject().iter_common_name().next().expect("a common name");
    name.as_str().expect("text").to_owned()
}
