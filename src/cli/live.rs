//! `tollgate explain --live`: asks the running gateway what would happen to a request.

mod text;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::admin::AdminClient;
use super::output::{fault, show};
use super::{ExplainArguments, ExplainForm, FAILED, MISTAKE};
use text::LiveExplanation;

/// The timeout for connecting, request and response together; the gateway may have to call a shared store.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the admin listener that `file` names, about a valid request.
pub(super) fn ask(file: &Path, asked: &ExplainArguments, form: ExplainForm) -> ExitCode {
    let ExplainArguments { method, url, headers, ip } = asked;
    let question = json!({ "method": method, "url": url, "headers": fields(headers), "ip": ip }).to_string();
    let admin = match AdminClient::named_in(file) {
        Ok(admin) => admin,
        Err(message) => return fault(MISTAKE, message),
    };
    let authorization = match admin.authorization() {
        Ok(authorization) => authorization,
        Err(message) => return fault(MISTAKE, message),
    };
    let address = admin.address;
    let answer = admin.ask(Method::POST, "/api/v1/explain", authorization, question, TIMEOUT);
    match answer.map(|(status, body)| (status, serde_json::from_slice::<Value>(&body).unwrap_or_default())) {
        Ok((StatusCode::OK, explanation)) if form == ExplainForm::Json => show(&format!("{explanation:#}")),
        Ok((StatusCode::OK, explanation)) => show(&LiveExplanation(&explanation).to_string()),
        Ok((status, problem)) => {
            let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("it says no more");
            fault(FAILED, format_args!("the gateway at {address} answers {status}: {detail}"))
        }
        Err(error) => fault(FAILED, format_args!("no gateway answers at {address}: {error}")),
    }
}

/// `NAME: VALUE` each, as an object; of a name that is repeated all values.
fn fields(headers: &[String]) -> Value {
    let mut fields = Map::new();
    for (name, value) in headers.iter().filter_map(|header| header.split_once(':')) {
        let values = fields.entry(name.trim()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(value.trim().into());
        }
    }
    Value::Object(fields)
}
