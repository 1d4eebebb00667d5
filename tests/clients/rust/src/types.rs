//! The commands send-types and receive-types: a case there, a case back.

use fe2o3_amqp::link::{CreditMode, RecvError};
use fe2o3_amqp::types::messaging::{
    annotations::OwnedKey, AmqpSequence, AmqpValue, ApplicationProperties, Batch, Body, Data,
    Footer, MessageAnnotations, MessageId, Properties,
};
use fe2o3_amqp::types::primitives::{OrderedMap, SimpleValue, Symbol, Value};
use serde_json::{json, Value as Json};
use tokio::time::timeout;

use crate::features::FEATURE_LIMIT;
use crate::notation::{noted, value_of};
use crate::scene::*;

pub async fn send(address: &str, file: &str) -> Held {
    let content = std::fs::read_to_string(file).expect_to("a file of cases")?;
    let cases: Vec<Json> = serde_json::from_str(&content).expect_to("cases")?;
    let scene = Scene::new("types");
    let mut peer = scene.connect().await?;
    let mut sender = peer.sender(address).await?;
    for case in &cases {
        let name = &case["name"];
        match message(case) {
            Ok(message) => {
                send_messages(&mut sender, [message]).await?;
                println!("{}", json!({"name": name, "result": "sent"}));
            }
            Err(why) => println!("{}", json!({"name": name, "result": "n/a", "why": why})),
        }
    }
    sender.close().await.expect_to("a closed sender")?;
    scene.strike().await;
    Ok(())
}

/// The case's message, or the reason why the library can't make it.
fn message(case: &Json) -> Result<Text, String> {
    let value = value_of(&case["value"])?;
    let mut message = text("");
    let mut properties = Properties::builder()
        .subject(case["name"].as_str().unwrap_or(""))
        .build();
    let annotated = |value| OrderedMap::from_iter([(Symbol::from("k").into(), value)]);
    match (case["section"].as_str().unwrap_or(""), value) {
        ("value", value) => message.body = Body::Value(AmqpValue(value)),
        ("data", Value::Binary(octets)) => {
            message.body = Body::Data(Batch::new(vec![Data(octets)]))
        }
        ("sequence", Value::List(items)) => {
            message.body = Body::Sequence(Batch::new(vec![AmqpSequence(items)]))
        }
        ("application-properties", value) => {
            let value = SimpleValue::try_from(value).map_err(|error| error.to_string())?;
            message.application_properties =
                Some(ApplicationProperties(OrderedMap::from_iter([(
                    "k".to_string(),
                    value,
                )])));
        }
        ("message-annotations", value) => {
            message.message_annotations = Some(MessageAnnotations(annotated(value)))
        }
        ("footer", value) => message.footer = Some(Footer(annotated(value))),
        ("message-id", value) => properties.message_id = Some(message_id(value)?),
        ("correlation-id", value) => properties.correlation_id = Some(message_id(value)?),
        (section, value) => return Err(format!("no {value:?} in a section {section}")),
    }
    message.properties = Some(properties);
    Ok(message)
}

fn message_id(value: Value) -> Result<MessageId, String> {
    match value {
        Value::String(id) => Ok(MessageId::String(id)),
        Value::Ulong(id) => Ok(MessageId::Ulong(id)),
        Value::Uuid(id) => Ok(MessageId::Uuid(id)),
        Value::Binary(id) => Ok(MessageId::Binary(id)),
        other => Err(format!("no message-id: {other:?}")),
    }
}

pub async fn receive(address: &str, count: usize) -> Held {
    let scene = Scene::new("types");
    let mut peer = scene.connect().await?;
    let mut receiver = peer
        .receiver_with("types", from(address), CreditMode::Auto(10))
        .await?;
    for _ in 0..count {
        match timeout(FEATURE_LIMIT, receiver.recv())
            .await
            .expect_to("a message")?
        {
            Ok(came) => {
                println!("{}", received(&came));
                receiver.accept(&came).await.expect_to("to accept")?;
            }
            Err(RecvError::MessageDecode(error)) => {
                let why = format!("the library can't decode it: {}", error.source);
                println!("{}", json!({"name": null, "result": "n/a", "why": why}));
                receiver.accept(error.info).await.expect_to("to accept")?;
            }
            Err(other) => return Err(other).expect_to("a message"),
        }
    }
    receiver.close().await.expect_to("a closed receiver")?;
    scene.strike().await;
    Ok(())
}

/// The case's value from the section that its name begins with.
fn received(came: &Came) -> Json {
    let properties = came.message().properties.clone().unwrap_or_default();
    let name = properties.subject.clone().unwrap_or_default();
    match in_section(&name, came, properties).and_then(|value| noted(&value)) {
        Ok(value) => json!({"name": name, "value": value}),
        Err(why) => json!({"name": name, "result": "n/a", "why": why}),
    }
}

fn in_section(name: &str, came: &Came, properties: Properties) -> Result<Value, String> {
    let message = came.message();
    let within = |section: &str| name.starts_with(&format!("{section}-"));
    let annotation = |map: Option<&OrderedMap<OwnedKey, Value>>| {
        let key = OwnedKey::from(Symbol::from("k"));
        map.and_then(|map| map.get(&key).cloned())
    };
    let found = if within("property") {
        let map = message.application_properties.as_ref();
        map.and_then(|map| map.0.get("k").cloned()).map(Value::from)
    } else if within("message-annotations") {
        annotation(message.message_annotations.as_ref().map(|map| &map.0))
    } else if within("footer") {
        annotation(message.footer.as_ref().map(|map| &map.0))
    } else if within("message-id") {
        properties.message_id.map(id_value)
    } else if within("correlation-id") {
        properties.correlation_id.map(id_value)
    } else {
        match &message.body {
            Body::Value(AmqpValue(value)) => Some(value.clone()),
            Body::Data(batch) => batch
                .iter()
                .next()
                .map(|data| Value::Binary(data.0.clone())),
            Body::Sequence(batch) => batch.iter().next().map(|list| Value::List(list.0.clone())),
            Body::Empty => None,
        }
    };
    found.ok_or_else(|| "expected a value, came none".to_string())
}

fn id_value(id: MessageId) -> Value {
    match id {
        MessageId::Ulong(id) => Value::Ulong(id),
        MessageId::Uuid(id) => Value::Uuid(id),
        MessageId::Binary(id) => Value::Binary(id),
        MessageId::String(id) => Value::String(id),
    }
}
