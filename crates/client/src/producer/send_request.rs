//! A message as a request: its code, header and properties, written straight into the connection's buffer.

use crate::producer::outgoing::OutgoingMessage;
use crate::producer::pending_send::PendingSend;
use crate::producer::shared::ProducerShared;
use crate::session::routes::HeadStart;
use bytes::Bytes;
use pyrmq_remoting::header::send::SendMessageRequestHeader;
use pyrmq_remoting::header::{FieldSink, Head, HeadWriter};
use pyrmq_remoting::message::properties::WAIT_FALSE;
use pyrmq_remoting::message::{DURABILITY, Durability};
use pyrmq_remoting::net::OutboundRequest;
use pyrmq_remoting::{Command, WireError, clock, frame};
use pyrmq_routing::route::PublishedQueue;
use std::borrow::Cow;

impl OutboundRequest for PendingSend {
    fn address(&self) -> &str {
        self.queue.as_ref().map_or("", |queue| &queue.address)
    }

    fn write_head(&self, opaque: i32, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (Some(queue), Some(route)) = (&self.queue, &self.route) else {
            return Ok(());
        };
        if self.shared.client.hook().is_some() {
            let mut command = self.shared.command(&self.outgoing, queue);
            command.opaque = opaque;
            self.shared.client.prepare(&mut command);
            return frame::encode_head(&command, out);
        }
        let properties = self.shared.properties(&self.outgoing);
        let header = self.shared.header(&self.outgoing, &properties, queue);
        let start = Head {
            code: self.outgoing.request_code(),
            opaque,
            ..Head::default()
        };
        let first = if let Some(first) = route.head_start.get() {
            first
        } else {
            let first = self.shared.head_start(&header, HeadWriter::new(out, start))?;
            route.head_start.get_or_init(|| first)
        };
        let mut head = HeadWriter::new(out, start);
        head.fields(&first.fields);
        let durability = self.shared.options.durability.map(Durability::name);
        if let Some(signature) = &first.signature {
            let body = &self.outgoing.body;
            signature.sign_sorted(
                |fields| {
                    // Between `d` and `e`: a signature needs the fields in order.
                    if let Some(name) = durability {
                        fields.ascii(DURABILITY, name);
                    }
                    header.write_own(fields);
                },
                body,
                &mut head,
            );
        } else {
            header.write_own(&mut head);
            if let Some(name) = durability {
                head.text(DURABILITY, name);
            }
        }
        head.finish(self.outgoing.body.len())
    }

    fn body(&self) -> &Bytes {
        &self.outgoing.body
    }

    fn on_queued(&mut self) {
        self.route = None;
    }
}

impl ProducerShared {
    /// The properties as they travel.
    fn properties<'a>(&self, outgoing: &'a OutgoingMessage) -> Cow<'a, str> {
        match self.options.durability {
            Some(Durability::Memory) => Cow::Owned([WAIT_FALSE, &outgoing.properties].concat()),
            _ => Cow::Borrowed(&outgoing.properties),
        }
    }

    fn header<'a>(
        &'a self,
        outgoing: &'a OutgoingMessage,
        properties: &'a str,
        queue: &'a PublishedQueue,
    ) -> SendMessageRequestHeader<'a> {
        SendMessageRequestHeader {
            producer_group: &self.options.client.group,
            topic: &outgoing.topic,
            default_topic: &self.options.create_topic_key,
            default_topic_queue_nums: self.options.default_queues,
            queue_id: queue.queue_id,
            sys_flag: outgoing.sys_flag,
            born_timestamp: clock::now_ms(),
            flag: outgoing.flag,
            properties: Some(properties).filter(|text| !text.is_empty()),
            reconsume_times: Some(0),
            unit_mode: self.options.unit_mode,
            max_reconsume_times: None,
            batch: outgoing.is_batch(),
            broker_name: Some(&queue.broker),
        }
    }

    /// The beginning of the heads of all messages to a topic.
    fn head_start(
        &self,
        header: &SendMessageRequestHeader<'_>,
        mut head: HeadWriter<'_>,
    ) -> Result<HeadStart, WireError> {
        let signature = if let Some(credentials) = &self.options.client.credentials {
            Some(credentials.begin_sorted(|fields| header.write_shared(fields), &mut head))
        } else {
            header.write_shared(&mut head);
            None
        };
        Ok(HeadStart {
            fields: head.into_fields()?,
            signature,
        })
    }

    /// The frame's head, except the opaque number, and its body, as one command.
    pub(crate) fn command(&self, outgoing: &OutgoingMessage, queue: &PublishedQueue) -> Command {
        let properties = self.properties(outgoing);
        let header = self.header(outgoing, &properties, queue);
        let mut command = Command::request(outgoing.request_code()).with_header(&header);
        if let Some(level) = self.options.durability {
            command.fields.push(DURABILITY, level.name());
        }
        command.body = Some(outgoing.body.clone());
        command
    }
}
