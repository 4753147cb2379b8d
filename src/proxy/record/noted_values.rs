//! Values of a request for the templates of the file: they are written after the request's head is gone.

use std::net::IpAddr;

use crate::http1::request::RequestHead;
use crate::measure::JsonPointer;
use crate::plan::resolve::RouteLookup;
use crate::plan::seen_request::SeenRequest;
use crate::plan::template::{MAX_MEMBER, MemberValue, TemplateValues};
use crate::plan::{Plan, Reject};
use crate::route::consumers::Consumer;
use crate::route::content::RequestContent;
use crate::route::locations::Country;

/// The values of a request's head that templates may name.
#[derive(Debug, Default)]
pub(crate) struct NotedValues {
    country: Option<Country>,
    host: String,
    path: String,
    route: String,
    consumer: String,
    tier: String,
    members: Vec<MemberValue>,
}

impl NotedValues {
    /// The values of a request, if a text of the file has such values. A path never shows a credential: it has no query.
    #[inline]
    pub(crate) fn of(
        plan: &Plan,
        head: &RequestHead<'_>,
        location: &RouteLookup<'_, '_>,
    ) -> Option<Box<Self>> {
        plan.has_templates().then(|| Self::note(head, location))
    }

    #[cold]
    fn note(head: &RequestHead<'_>, location: &RouteLookup<'_, '_>) -> Box<Self> {
        let RouteLookup { host, route, .. } = location;
        let merge_slashes = route.is_none_or(|(_, route)| route.conditions.merge_slashes);
        let request = location.seen().map(SeenRequest::request);
        let path = request.map_or(head.target.path, |request| request.path.form(merge_slashes));
        Box::new(Self {
            country: request.and_then(|request| request.client.location.country),
            host: host.clone().into_owned(),
            path: path.to_owned(),
            route: route.map(|(_, route)| route.name.to_string()).unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Notes the consumer that the request's credential names.
    pub(crate) fn set_consumer(&mut self, consumer: Consumer<'_>) {
        consumer.name().clone_into(&mut self.consumer);
        consumer.tier().unwrap_or_default().clone_into(&mut self.tier);
    }

    /// Notes the values of a body that a refusal repeats.
    pub(crate) fn set_members(&mut self, reject: &Reject, content: &RequestContent) {
        let member = |pointer: &JsonPointer| {
            let (text, is_text) = content.scalar(pointer).filter(|(text, _)| text.len() <= MAX_MEMBER)?;
            Some(MemberValue { pointer: pointer.clone(), text: text.into(), is_text })
        };
        self.members = reject.json_pointers().filter_map(member).collect();
    }

    /// These values, and those that were not noted.
    pub(crate) fn values<'a>(
        noted: Option<&'a Self>,
        request_id: &'a [u8],
        client: Option<IpAddr>,
    ) -> TemplateValues<'a> {
        let values = TemplateValues { request_id, client, ..TemplateValues::default() };
        match noted {
            None => values,
            Some(Self { country, host, path, route, consumer, tier, members }) => {
                TemplateValues { country: *country, host, path, route, consumer, tier, members, ..values }
            }
        }
    }
}
