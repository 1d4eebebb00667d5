//! Features of topics: who gets what is published, and what a subscription keeps.

use fe2o3_amqp::link::CreditMode;
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::Receiver;

use crate::scene::*;

/// apache.org:no-local-filter:list of the registered filters.
const NO_LOCAL_FILTER: (&str, u64) = ("apache.org:no-local-filter:list", 0x0000_468C_0000_0003);

pub async fn topic(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&s.at("news.all")).await?;
    send(&mut sender, &["too early"]).await?;
    let mut first = p.receiver(&s.at("news.all")).await?;
    let mut second = p.receiver(&s.at("news.all")).await?;
    let texts = numbered("", 10);
    send(&mut sender, &texts).await?;
    for came in gather(20, &mut [&mut first, &mut second]).await? {
        same(&came, &texts, "for each receiver")?;
    }
    Ok(())
}

pub async fn wildcard(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut europe = p.receiver(&s.at("news.eu.*")).await?;
    let mut all = p.receiver(&s.at("news.>")).await?;
    send(&mut p.sender(&s.at("news.eu.fr")).await?, &["france"]).await?;
    send(&mut p.sender(&s.at("news.us.ny")).await?, &["new york"]).await?;
    let found = gather(3, &mut [&mut europe, &mut all]).await?;
    same(found[0].join(", ").as_str(), "france", "for news.eu.*")?;
    same(
        found[1].join(", ").as_str(),
        "france, new york",
        "for news.>",
    )
}

async fn detach(receiver: Receiver) -> Held {
    let detached = receiver.detach().await;
    detached
        .map(|_| ())
        .map_err(|(_, error)| error)
        .expect_to("a detached receiver")
}

pub async fn durable_subscription(s: &Scene) -> Held {
    let address = s.at("news.durable");
    let container = format!("{}-durable", s.prefix);
    let name = format!("{}-sub", s.prefix);
    let mut publisher = s.connect().await?;
    let mut sender = publisher.sender(&address).await?;

    let mut p = s.connect_as(&container).await?;
    let credit = || CreditMode::Auto(100);
    let mut receiver = p
        .receiver_with(&name, subscription(&address), credit())
        .await?;
    send(&mut sender, &["while attached"]).await?;
    let came = take_one(&mut receiver).await?;
    same(body(&came), "while attached", "the message")?;
    accept(&receiver, &[came]).await?;
    detach(receiver).await?;
    p.close().await;

    let texts = numbered("meanwhile", 3);
    send(&mut sender, &texts).await?;
    let mut p = s.connect_as(&container).await?;
    let mut receiver = p
        .receiver_with(&name, subscription(&address), credit())
        .await?;
    let came = take(&mut receiver, 3).await?;
    same(bodies(&came), texts, "what was published meanwhile")?;
    accept(&receiver, &came).await?;
    receiver.close().await.expect_to("a closed receiver")?;
    p.close().await;

    send(&mut sender, &["unsubscribed"]).await?;
    let mut p = s.connect_as(&container).await?;
    let mut receiver = p
        .receiver_with(&name, subscription(&address), credit())
        .await?;
    nothing(&mut receiver).await?;
    receiver.close().await.expect_to("a closed receiver")
}

/// A connection's links may not share a name, so a shared subscription's links bear its name up to the `|`, as
/// in the AMQP mapping of JMS.
pub async fn shared_subscription(s: &Scene) -> Held {
    let address = s.at("news.shared");
    let mut p = s.connect_as(&format!("{}-shared", s.prefix)).await?;
    let source = || capable(from(&address), "shared");
    let name = format!("{}-shared", s.prefix);
    let mut first = p
        .counted_with(&format!("{name}|volatile1"), source(), 5)
        .await?;
    let mut second = p
        .counted_with(&format!("{name}|volatile2"), source(), 5)
        .await?;
    let texts = numbered("", 10);
    send(&mut p.sender(&address).await?, &texts).await?;
    divided(
        &gather(10, &mut [&mut first, &mut second]).await?,
        &texts,
        5,
    )
}

pub async fn shared_durable(s: &Scene) -> Held {
    let address = s.at("news.shared");
    let container = format!("{}-shared-durable", s.prefix);
    let name = format!("{}-shared-sub", s.prefix);
    let source = || capable(subscription(&address), "shared");
    let mut publisher = s.connect().await?;
    let mut sender = publisher.sender(&address).await?;
    let mut one = s.connect_as(&container).await?;
    let mut other = s.connect_as(&container).await?;
    let mut first = one.counted_with(&name, source(), 5).await?;
    let mut second = other
        .counted_with(&format!("{name}|2"), source(), 5)
        .await?;
    let texts = numbered("", 10);
    send(&mut sender, &texts).await?;
    divided(
        &gather(10, &mut [&mut first, &mut second]).await?,
        &texts,
        5,
    )?;
    detach(first).await?;
    detach(second).await?;
    one.close().await;
    other.close().await;

    let texts = numbered("meanwhile", 3);
    send(&mut sender, &texts).await?;
    let mut p = s.connect_as(&container).await?;
    let mut receiver = p
        .receiver_with(&name, source(), CreditMode::Auto(100))
        .await?;
    let came = take(&mut receiver, 3).await?;
    same(bodies(&came), texts, "what was published meanwhile")?;
    accept(&receiver, &came).await?;
    receiver.close().await.expect_to("a closed receiver")
}

pub async fn no_local(s: &Scene) -> Held {
    let address = s.at("news.local");
    let mut p = s.connect().await?;
    let mut another = s.connect().await?;
    let nothing_in_it = Value::List(vec![]);
    let source = filtered(
        &address,
        NO_LOCAL_FILTER.0,
        NO_LOCAL_FILTER.1,
        nothing_in_it,
    );
    let mut receiver = p.receiver_from(source, 100).await?;
    send(&mut p.sender(&address).await?, &["its own"]).await?;
    send(&mut another.sender(&address).await?, &["another's"]).await?;
    let found = gather(1, &mut [&mut receiver]).await?;
    same(
        found[0].join(", ").as_str(),
        "another's",
        "what isn't its own",
    )
}
