//! Features of queues: what is sent, held, settled and given again.

use std::time::Duration;

use fe2o3_amqp::types::definitions::{self, AmqpError, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Data, DistributionMode, Header, Message, Priority, Source, Target,
};
use fe2o3_amqp::Delivery;
use tokio::time::{sleep, timeout};

use crate::features::FEATURE_LIMIT;
use crate::random::Random;
use crate::scene::*;

pub const SELECTOR_FILTER: (&str, u64) =
    ("apache.org:selector-filter:string", 0x0000_468C_0000_0004);

pub async fn send_receive(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let texts = numbered("", 100);
    send(&mut p.sender(&s.at("plain")).await?, &texts).await?;
    let mut receiver = p.receiver(&s.at("plain")).await?;
    let came = take(&mut receiver, texts.len()).await?;
    same(bodies(&came), texts, "messages")?;
    accept(&receiver, &came).await?;
    nothing(&mut receiver).await
}

pub async fn presettled(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let texts = numbered("", 100);
    let target = Target::builder().address(s.at("presettled")).build();
    let name = format!("{}-presettled", s.prefix);
    let mut sender = p
        .sender_with(&name, target, SenderSettleMode::Settled)
        .await?;
    send(&mut sender, &texts).await?;
    let mut receiver = p.at_most_once(from(&s.at("presettled")), 100).await?;
    same(
        bodies(&take(&mut receiver, texts.len()).await?),
        texts,
        "messages",
    )?;
    p.close().await;
    nothing(&mut s.connect().await?.receiver(&s.at("presettled")).await?).await
}

pub async fn blocked(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&s.at("small")).await?;
    send(&mut sender, &numbered("", 10)).await?;
    let mut eleventh = tokio::spawn(async move { sender.send(text("10")).await });
    if let Ok(came) = timeout(QUIET, &mut eleventh).await {
        return fail(format!(
            "expected no outcome of the eleventh within {QUIET:?}, came {came:?}"
        ));
    }
    let mut receiver = p.counted(from(&s.at("small")), 7).await?;
    let came = take(&mut receiver, 7).await?;
    accept(&receiver, &came).await?;
    match timeout(ARRIVAL, eleventh).await {
        Ok(came) => accepted(
            came.expect_to("the eleventh sent")?
                .expect_to("the eleventh accepted")?,
        ),
        Err(_) => fail(format!(
            "expected the eleventh accepted within {ARRIVAL:?}, no outcome came"
        )),
    }
}

pub async fn credit(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let texts = numbered("", 10);
    send(&mut p.sender(&s.at("credit")).await?, &texts).await?;
    let mut first = p.receiver_from(from(&s.at("credit")), 3).await?;
    let held = take(&mut first, 3).await?;
    nothing(&mut first).await?;
    let mut second = p.receiver(&s.at("credit")).await?;
    let others = take(&mut second, 7).await?;
    nothing(&mut second).await?;
    same([bodies(&held), bodies(&others)].concat(), texts, "messages")
}

pub async fn outcomes(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&s.at("outcomes")).await?;
    let mut receiver = p.receiver(&s.at("outcomes")).await?;

    send(&mut sender, &["released"]).await?;
    let came = take_one(&mut receiver).await?;
    receiver.release(came).await.expect_to("to release")?;
    let again = take_one(&mut receiver).await?;
    same(body(&again), "released", "again the message")?;
    accept(&receiver, &[again]).await?;

    send(&mut sender, &["rejected"]).await?;
    let came = take_one(&mut receiver).await?;
    let why = definitions::Error::new(AmqpError::InternalError, "not wanted".to_string(), None);
    receiver.reject(came, why).await.expect_to("to reject")?;
    nothing(&mut receiver).await?;

    send(&mut sender, &["modified"]).await?;
    let came = take_one(&mut receiver).await?;
    receiver
        .modify(came, failed_delivery())
        .await
        .expect_to("to modify")?;
    let again = take_one(&mut receiver).await?;
    same(body(&again), "modified", "again the message")?;
    same(delivery_count(&again), 1, "delivery-count")?;
    accept(&receiver, &[again]).await
}

pub async fn redelivery(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    send(&mut p.sender(&s.at("redelivery")).await?, &["again"]).await?;
    let mut left = p.receiver(&s.at("redelivery")).await?;
    let came = take_one(&mut left).await?;
    same(delivery_count(&came), 0, "delivery-count at first")?;
    p.close().await;
    let mut p = s.connect().await?;
    let mut receiver = p.receiver(&s.at("redelivery")).await?;
    let came = take_one(&mut receiver).await?;
    same(body(&came), "again", "the message")?;
    same(delivery_count(&came), 1, "delivery-count")?;
    accept(&receiver, &[came]).await
}

pub async fn acknowledge(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let texts = numbered("", 5);
    send(&mut p.sender(&s.at("ack")).await?, &texts).await?;
    let mut receiver = p.receiver(&s.at("ack")).await?;
    let mut came = Vec::new();
    for _ in &texts {
        came.push(take_one(&mut receiver).await?);
    }
    same(bodies(&came), texts, "messages")?;
    receiver
        .accept_all(&came)
        .await
        .expect_to("to accept all")?;
    receiver.close().await.expect_to("a closed receiver")?;
    let mut p = s.connect().await?;
    let mut receiver = p.receiver(&s.at("ack")).await?;
    nothing(&mut receiver).await
}

pub async fn browse(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let texts = numbered("", 5);
    send(&mut p.sender(&s.at("browse")).await?, &texts).await?;
    for _ in 0..2 {
        let source = Source::builder()
            .address(s.at("browse"))
            .distribution_mode(DistributionMode::Copy)
            .build();
        let mut browser = p.receiver_from(source, 100).await?;
        let seen = take(&mut browser, texts.len()).await?;
        same(bodies(&seen), texts.clone(), "messages to see")?;
        accept(&browser, &seen).await?;
        nothing(&mut browser).await?;
        browser.close().await.expect_to("a closed browser")?;
    }
    let mut receiver = p.receiver(&s.at("browse")).await?;
    let came = take(&mut receiver, texts.len()).await?;
    same(bodies(&came), texts, "messages to consume")?;
    accept(&receiver, &came).await
}

fn coloured(body: &str, colour: &str, weight: i32) -> Text {
    let mut message = text(body);
    message.application_properties = Some(
        ApplicationProperties::builder()
            .insert("colour", colour)
            .insert("weight", weight)
            .build(),
    );
    message
}

fn selecting(address: &str, selector: &str) -> Source {
    filtered(address, SELECTOR_FILTER.0, SELECTOR_FILTER.1, selector)
}

pub async fn selector(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let messages = [
        coloured("light red", "red", 5),
        coloured("heavy red", "red", 20),
        coloured("blue", "blue", 20),
    ];
    send_messages(&mut p.sender(&s.at("selected")).await?, messages).await?;
    let source = selecting(&s.at("selected"), "colour = 'red' AND weight > 10");
    let mut selecting = p.receiver_from(source, 100).await?;
    let selected = take_one(&mut selecting).await?;
    same(body(&selected), "heavy red", "selected")?;
    accept(&selecting, &[selected]).await?;
    nothing(&mut selecting).await?;
    let mut all = p.receiver(&s.at("selected")).await?;
    let others = take(&mut all, 2).await?;
    same(
        bodies(&others),
        vec!["light red".to_string(), "blue".to_string()],
        "others",
    )?;
    accept(&all, &others).await
}

pub async fn bad_selector(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let came = p
        .try_receiver(selecting(&s.at("selected"), "colour = = 3"))
        .await?;
    refused(&came, &AmqpError::InvalidField, "the selector")
}

pub async fn exclusive(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let _first = p.receiver(&s.at("exclusive")).await?;
    let mut second = s.connect().await?;
    let came = second.try_receiver(from(&s.at("exclusive"))).await?;
    refused(&came, &AmqpError::ResourceLocked, "a second receiver")
}

pub async fn single_active(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&s.at("single")).await?;
    let mut first = p.receiver(&s.at("single")).await?;
    let mut second = p.receiver(&s.at("single")).await?;
    let (early, late) = (numbered("early", 5), numbered("late", 5));
    send(&mut sender, &early).await?;
    let found = gather(5, &mut [&mut first, &mut second]).await?;
    same(&found[0], &early, "for the first receiver")?;
    same(&found[1], &vec![], "for the second receiver")?;
    first.close().await.expect_to("a closed receiver")?;
    send(&mut sender, &late).await?;
    let found = gather(5, &mut [&mut second]).await?;
    same(&found[0], &late, "for the second receiver, now active")
}

pub async fn expiry(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut brief = text("brief");
    brief.header = Some(Header::builder().ttl(200).build());
    let mut sender = p.sender(&s.at("expiry")).await?;
    send_messages(&mut sender, [brief]).await?;
    sleep(Duration::from_millis(600)).await;
    let mut receiver = p.receiver(&s.at("expiry")).await?;
    nothing(&mut receiver).await?;
    send(&mut sender, &["lasting"]).await?;
    let came = take_one(&mut receiver).await?;
    same(body(&came), "lasting", "the message")?;
    accept(&receiver, &[came]).await
}

pub async fn priority(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut urgent = text("urgent");
    urgent.header = Some(Header::builder().priority(7).build());
    send_messages(
        &mut p.sender(&s.at("priority")).await?,
        [urgent, text("usual")],
    )
    .await?;
    let mut receiver = p.receiver(&s.at("priority")).await?;
    let came = take(&mut receiver, 2).await?;
    for each in &came {
        // A header that isn't there means the default (§3.2.1).
        let header = each.message().header.as_ref();
        let priority = header.map_or(4, |header| {
            let Priority(priority) = header.priority;
            priority
        });
        let expected = if body(each) == "urgent" { 7 } else { 4 };
        same(priority, expected, &format!("priority of {}", body(each)))?;
    }
    accept(&receiver, &came).await
}

pub async fn large(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let octets = Random(20).octets(20 << 20);
    let mut receiver = p.receiver(&s.at("large")).await?;
    let mut sender = p.sender(&s.at("large")).await?;
    let message = Message::builder().data(octets.clone()).build();
    accepted(sender.send(message).await.expect_to("an outcome")?)?;
    let came: Delivery<Data> = timeout(FEATURE_LIMIT, receiver.recv())
        .await
        .expect_to("the large message")?
        .expect_to("the large message")?;
    if came.body().0 != octets {
        return fail(format!(
            "expected the same {} bytes, came {}, some of them others",
            octets.len(),
            came.body().0.len()
        ));
    }
    receiver.accept(&came).await.expect_to("to accept")
}

pub async fn drain(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&s.at("drain")).await?;
    let texts = numbered("", 3);
    send(&mut sender, &texts).await?;
    let mut receiver = p.counted(from(&s.at("drain")), 10).await?;
    let came = take(&mut receiver, 3).await?;
    same(bodies(&came), texts, "messages")?;
    accept(&receiver, &came).await?;
    receiver.drain().await.expect_to("to drain")?;
    // The library doesn't tell when the broker's answer comes: no message may follow, whenever that was.
    nothing(&mut receiver).await?;
    send(&mut sender, &["late"]).await?;
    nothing(&mut receiver).await?;
    receiver.set_credit(1).await.expect_to("new credit")?;
    let came = take_one(&mut receiver).await?;
    same(body(&came), "late", "with new credit")?;
    accept(&receiver, &[came]).await
}
