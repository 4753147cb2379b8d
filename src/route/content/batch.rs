//! JSON lists: the calls of a batch (JSON-RPC 2.0 §6).

use serde_json::value::RawValue;

use super::json::JsonMembers;
use super::{BodyValue, RequestContent, UnreadableBody};
use crate::measure::JsonPointer;

/// The maximum number of calls in a batch.
pub const MAX_CALLS: usize = 100;

/// A document that is a list. The list itself has the values of pointers that begin with an index; all others lead into its
/// items, the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonBatch {
    list: JsonMembers,
    /// Each is [`RequestContent::Json`], or unreadable if it is no object. Empty: there are none, or more than
    /// [`MAX_CALLS`], or the list is malformed.
    calls: Vec<RequestContent>,
}

impl JsonBatch {
    /// Whether a document is a list.
    pub(super) fn is_list(body: &[u8]) -> bool {
        body.iter().find(|byte| !b" \t\r\n".contains(byte)) == Some(&b'[')
    }

    /// The values at these pointers in the list, and in each of its items.
    pub(super) fn read(body: &[u8], pointers: &[JsonPointer]) -> Self {
        let items: Vec<&RawValue> = serde_json::from_slice(body).unwrap_or_default();
        let call = |item: &&RawValue| match item.get() {
            text if text.starts_with('{') => {
                RequestContent::Json(JsonMembers::read(text.as_bytes(), pointers))
            }
            _ => RequestContent::Unreadable(UnreadableBody::Broken),
        };
        let calls = if items.len() > MAX_CALLS { Vec::new() } else { items.iter().map(call).collect() };
        Self { list: JsonMembers::read(body, pointers), calls }
    }

    /// Its calls: 1 to [`MAX_CALLS`]. Empty: it is no batch that can be served.
    pub fn calls(&self) -> &[RequestContent] {
        &self.calls
    }

    /// The number of bytes of the list.
    pub(super) fn length(&self) -> usize {
        self.list.length()
    }

    /// The value at one of its pointers in the list itself.
    pub(super) fn value(&self, pointer: &JsonPointer) -> BodyValue<'_> {
        match pointer.begins_with_index() {
            true => self.list.value(pointer),
            false => BodyValue::Unreadable(UnreadableBody::Batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn pointer(text: &str) -> JsonPointer {
        JsonPointer::parse(text).expect("a pointer")
    }

    fn batch(text: &str, pointers: &[JsonPointer]) -> JsonBatch {
        assert!(JsonBatch::is_list(text.as_bytes()), "{text}");
        JsonBatch::read(text.as_bytes(), pointers)
    }

    #[test]
    fn each_item_is_a_call() {
        let name = [pointer("/params/name"), pointer("/0/id")];
        let calls = r#" [{"id":7,"params":{"name":"a"}},{"params":{"name":"b"}}, 3, [{}], null]"#;
        let batch = batch(calls, &name);
        let names: Vec<_> = batch.calls().iter().map(|call| call.member(&name[0])).collect();
        let broken = BodyValue::Unreadable(UnreadableBody::Broken);
        let single = |text: &str| BodyValue::Single(text.as_bytes().to_vec().into());
        assert_eq!(names, [single("a"), single("b"), broken.clone(), broken.clone(), broken]);
        assert_eq!(batch.value(&name[1]), single("7"), "of the list itself");
        assert_eq!(batch.value(&name[0]), BodyValue::Unreadable(UnreadableBody::Batch));
        assert_eq!(batch.length(), calls.len());
    }

    #[test]
    fn a_batch_of_no_or_too_many_calls_has_none() {
        let list = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        assert_eq!(batch(&list(MAX_CALLS), &[]).calls().len(), MAX_CALLS);
        for text in [list(0), list(MAX_CALLS + 1), "[{}".into(), "[{},]".into(), "[{}] 1".into()] {
            assert_eq!(batch(&text, &[]).calls(), [], "{text}");
        }
    }

    proptest! {
        /// The calls of a list are what its items are alone, and a cut list has none.
        #[test]
        fn a_call_is_what_its_document_is_alone(ids in prop::collection::vec(any::<Option<i8>>(), 1..6)) {
            let id = [pointer("/id")];
            let documents: Vec<_> = ids.iter().map(|id| serde_json::json!({"id": id}).to_string()).collect();
            let text = format!("[{}]", documents.join(" ,\n"));
            let batch = batch(&text, &id);
            for (call, document) in batch.calls().iter().zip(&documents) {
                let alone = RequestContent::Json(JsonMembers::read(document.as_bytes(), &id));
                prop_assert_eq!(call, &alone);
            }
            prop_assert_eq!(batch.calls().len(), ids.len());
            for cut in 1..text.len() {
                prop_assert!(JsonBatch::read(&text.as_bytes()[..cut], &id).calls().is_empty());
            }
        }

        #[test]
        fn no_bytes_bring_it_down(body in prop::collection::vec(any::<u8>(), 0..60)) {
            let text = [&b"["[..], &body].concat();
            let batch = JsonBatch::read(&text, &[pointer("/a")]);
            let items = serde_json::from_slice::<Vec<Value>>(&text).map_or(0, |items| items.len());
            prop_assert_eq!(batch.calls().len(), items);
        }
    }
}
