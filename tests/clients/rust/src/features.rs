//! Which features there are, and how one is run: in its own scene, for at most 20 s.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::features_addresses as addresses;
use crate::features_connections as connections;
use crate::features_queues as queues;
use crate::features_topics as topics;
use crate::scene::{Failure, Held, Scene};

pub const FEATURE_LIMIT: Duration = Duration::from_secs(20);

pub async fn run(prefix: &str, names: &[&str]) {
    for name in names {
        let (result, why) = run_one(prefix, name).await;
        println!("{}", json!({"feature": name, "result": result, "why": why}));
    }
}

/// Waits no longer than the limit: a feature that hangs is dropped, and its connections are cut.
async fn run_one(prefix: &str, name: &str) -> (&'static str, String) {
    let scene = Scene::new(prefix);
    let verdict = match timeout(FEATURE_LIMIT, feature(name, &scene)).await {
        Ok(None) => ("n/a", "this program doesn't know the feature".to_string()),
        Ok(Some(Ok(()))) => ("pass", String::new()),
        Ok(Some(Err(Failure(why)))) => ("fail", why),
        Err(_) => (
            "fail",
            format!("expected an end within {FEATURE_LIMIT:?}, it hangs"),
        ),
    };
    scene.strike().await;
    verdict
}

async fn feature(name: &str, scene: &Scene) -> Option<Held> {
    Some(match name {
        "send-receive" => queues::send_receive(scene).await,
        "presettled" => queues::presettled(scene).await,
        "blocked" => queues::blocked(scene).await,
        "credit" => queues::credit(scene).await,
        "outcomes" => queues::outcomes(scene).await,
        "redelivery" => queues::redelivery(scene).await,
        "acknowledge" => queues::acknowledge(scene).await,
        "reply" => addresses::reply(scene).await,
        "temporary-topic" => addresses::temporary_topic(scene).await,
        "relay" => addresses::relay(scene).await,
        "queue-capability" => addresses::queue_capability(scene).await,
        "topic-capability" => addresses::topic_capability(scene).await,
        "prefixes" => addresses::prefixes(scene).await,
        "topic" => topics::topic(scene).await,
        "wildcard" => topics::wildcard(scene).await,
        "durable-subscription" => topics::durable_subscription(scene).await,
        "shared-subscription" => topics::shared_subscription(scene).await,
        "shared-durable" => topics::shared_durable(scene).await,
        "browse" => queues::browse(scene).await,
        "selector" => queues::selector(scene).await,
        "bad-selector" => queues::bad_selector(scene).await,
        "no-local" => topics::no_local(scene).await,
        "exclusive" => queues::exclusive(scene).await,
        "single-active" => queues::single_active(scene).await,
        "expiry" => queues::expiry(scene).await,
        "priority" => queues::priority(scene).await,
        "large" => queues::large(scene).await,
        "not-found" => addresses::not_found(scene).await,
        "drain" => queues::drain(scene).await,
        "reattach" => connections::reattach(scene).await,
        "idle" => connections::idle(scene).await,
        "websocket" => connections::websocket(scene).await,
        _ => return None,
    })
}
