//! Features of addresses and nodes: dynamic ones, relays, capabilities, prefixes, refusals.

use std::time::{Duration, Instant};

use fe2o3_amqp::types::definitions::AmqpError;
use fe2o3_amqp::types::messaging::{MessageId, Properties, Source, Target};
use fe2o3_amqp::types::primitives::{Array, Symbol};
use fe2o3_amqp::{Receiver, Sender};
use tokio::time::sleep;

use crate::scene::*;

pub async fn reply(s: &Scene) -> Held {
    let mut requester = s.connect().await?;
    let mut responder = s.connect().await?;
    let dynamic = Source::builder().dynamic(true).build();
    let mut replies = requester.receiver_from(dynamic, 10).await?;
    let Some(address) = replies.source().as_ref().and_then(|s| s.address.clone()) else {
        return fail("expected an address of the dynamic queue, came none");
    };
    let mut requests = responder.receiver(&s.at("requests")).await?;
    let mut request = text("question");
    request.properties = Some(
        Properties::builder()
            .reply_to(address.clone())
            .correlation_id("number 7".to_string())
            .build(),
    );
    let mut asker = requester.sender(&s.at("requests")).await?;
    send_messages(&mut asker, [request]).await?;

    let asked = take_one(&mut requests).await?;
    let properties = asked.message().properties.clone().unwrap_or_default();
    same(properties.reply_to, Some(address.clone()), "reply-to")?;
    accept(&requests, &[asked]).await?;
    let mut response = text("answer");
    response.properties = Some(Properties {
        correlation_id: properties.correlation_id,
        ..Default::default()
    });
    send_messages(&mut responder.sender(&address).await?, [response]).await?;
    let answer = take_one(&mut replies).await?;
    same(body(&answer), "answer", "the answer")?;
    let properties = answer.message().properties.clone().unwrap_or_default();
    let expected = Some(MessageId::String("number 7".to_string()));
    same(properties.correlation_id, expected, "correlation-id")?;
    accept(&replies, &[answer]).await?;

    requester.close().await;
    // The broker may hear of the closed connection a little later than we attach.
    let deadline = Instant::now() + ARRIVAL;
    let expected = Symbol::from(&AmqpError::NotFound).0;
    while responder.try_receiver(from(&address)).await? != expected && Instant::now() < deadline {
        sleep(Duration::from_millis(50)).await;
    }
    let came = responder.try_receiver(from(&address)).await?;
    refused(&came, &AmqpError::NotFound, "a receiver")?;
    let came = responder.try_sender(&address).await?;
    refused(&came, &AmqpError::NotFound, "a sender")
}

fn wanting(mut target: Target, capability: &str) -> Target {
    target.capabilities = Some(Array(vec![Symbol::from(capability)]));
    target
}

pub async fn temporary_topic(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let dynamic = Target::builder().dynamic(true).build();
    let mut sender = p.sender_to(wanting(dynamic, "temporary-topic")).await?;
    let Some(address) = sender.target().as_ref().and_then(|t| t.address.clone()) else {
        return fail("expected an address of the dynamic topic, came none");
    };
    let mut first = p.receiver(&address).await?;
    let mut second = p.receiver(&address).await?;
    send(&mut sender, &["news"]).await?;
    for came in gather(2, &mut [&mut first, &mut second]).await? {
        same(came.join(", ").as_str(), "news", "for each receiver")?;
    }
    Ok(())
}

pub async fn relay(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender_to(Target::default()).await?;
    let addresses = [s.at("relay1"), s.at("relay2")];
    for address in &addresses {
        let mut message = text(format!("to {address}"));
        message.properties = Some(Properties::builder().to(address.clone()).build());
        send_messages(&mut sender, [message]).await?;
    }
    for address in &addresses {
        let mut receiver = p.receiver(address).await?;
        let found = gather(1, &mut [&mut receiver]).await?;
        same(found[0].join(", "), format!("to {address}"), "what arrived")?;
    }
    Ok(())
}

/// Two receivers with that credit and a sender, all attached with the capability.
async fn made(
    p: &mut Peer<'_>,
    address: &str,
    capability: &str,
    credit: u32,
) -> Result<(Sender, Receiver, Receiver), Failure> {
    let source = || capable(from(address), capability);
    let target = Target::builder().address(address).build();
    Ok((
        p.sender_to(wanting(target, capability)).await?,
        p.counted(source(), credit).await?,
        p.counted(source(), credit).await?,
    ))
}

pub async fn queue_capability(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let (mut sender, mut first, mut second) = made(&mut p, &s.at("made.queue"), "queue", 1).await?;
    let texts = numbered("", 2);
    send(&mut sender, &texts).await?;
    divided(&gather(2, &mut [&mut first, &mut second]).await?, &texts, 1)
}

pub async fn topic_capability(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let (mut sender, mut first, mut second) =
        made(&mut p, &s.at("made.topic"), "topic", 10).await?;
    let texts = numbered("", 2);
    send(&mut sender, &texts).await?;
    for came in gather(4, &mut [&mut first, &mut second]).await? {
        same(&came, &texts, "for each receiver")?;
    }
    Ok(())
}

pub async fn prefixes(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&format!("queue://{}", s.at("prefixed"))).await?;
    send(&mut sender, &["to a queue"]).await?;
    let mut receiver = p.receiver(&s.at("prefixed")).await?;
    let found = gather(1, &mut [&mut receiver]).await?;
    same(found[0].join(", ").as_str(), "to a queue", "from the queue")?;

    let news = s.at("news.prefixed");
    let mut subscriber = p.receiver(&format!("/{news}")).await?;
    let mut sender = p.sender(&format!("topic://{news}")).await?;
    send(&mut sender, &["to a topic"]).await?;
    let found = gather(1, &mut [&mut subscriber]).await?;
    same(found[0].join(", ").as_str(), "to a topic", "from the topic")
}

pub async fn not_found(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let address = s.at("closed.nowhere");
    let came = p.try_receiver(from(&address)).await?;
    refused(&came, &AmqpError::NotFound, "a receiver")?;
    let came = p.try_sender(&address).await?;
    refused(&came, &AmqpError::NotFound, "a sender")
}
