//! Features of links and connections themselves.

use std::time::Duration;

use tokio::time::sleep;

use crate::scene::*;

pub async fn reattach(s: &Scene) -> Held {
    let mut p = s.connect().await?;
    let mut sender = p.sender(&s.at("reattach")).await?;
    send(&mut sender, &["before"]).await?;
    let detached = sender.detach().await.map_err(|(_, error)| error);
    let resumed = detached.expect_to("a detached sender")?.resume().await;
    let mut sender = resumed
        .map_err(|error| error.kind)
        .expect_to("the sender attached again")?;
    send(&mut sender, &["after"]).await?;
    let mut receiver = p.receiver(&s.at("reattach")).await?;
    let found = gather(2, &mut [&mut receiver]).await?;
    same(found[0].join(", ").as_str(), "before, after", "messages")
}

pub async fn idle(s: &Scene) -> Held {
    let mut p = s
        .connect_idle(&format!("{}-idle", s.prefix), Some(1000))
        .await?;
    let mut sender = p.sender(&s.at("idle")).await?;
    let mut receiver = p.receiver(&s.at("idle")).await?;
    sleep(Duration::from_secs(3)).await;
    send(&mut sender, &["still here"]).await?;
    let found = gather(1, &mut [&mut receiver]).await?;
    same(found[0].join(", ").as_str(), "still here", "messages")
}

pub async fn websocket(s: &Scene) -> Held {
    let mut p = s.connect_websocket().await?;
    let texts = numbered("", 10);
    send(&mut p.sender(&s.at("websocket")).await?, &texts).await?;
    let mut receiver = p.receiver(&s.at("websocket")).await?;
    let found = gather(10, &mut [&mut receiver]).await?;
    same(&found[0], &texts, "messages")
}
