//! Transactions of fe2o3-amqp as they are: a JSON line for each step, `{"step": …, "got": …}`.
//!
//! `transactions ADDRESS` declares, posts, retires and discharges both ways, and drops one without a word. The
//! library keeps the transaction-id to itself, so that an unknown one can't be discharged with it.

use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::transaction::{
    Controller, OwnedTransaction, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).ok_or("usage: transactions ADDRESS")?;
    let url = std::env::var("URL")?;
    let mut connection = Connection::builder()
        .container_id("transactions")
        .sasl_profile(SaslProfile::Anonymous)
        .open(url.as_str())
        .await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut sender = Sender::attach(&mut session, "sender", address.as_str()).await?;
    let mut receiver = Receiver::attach(&mut session, "receiver", address.as_str()).await?;
    let controller = Controller::attach(&mut session, "controller").await?;

    let transaction = Transaction::declare(&controller, None).await?;
    for number in 0..3 {
        transaction.post(&mut sender, format!("committed {number}")).await?;
    }
    say("before the commit", next(&mut receiver).await?);
    transaction.commit().await?;
    for _ in 0..3 {
        say("after the commit", next(&mut receiver).await?);
    }

    let transaction = Transaction::declare(&controller, None).await?;
    transaction.post(&mut sender, "rolled back".to_string()).await?;
    transaction.rollback().await?;
    say("after the rollback", next(&mut receiver).await?);

    sender.send("taken".to_string()).await?;
    let transaction = Transaction::declare(&controller, None).await?;
    let delivery = receiver.recv::<String>().await?;
    transaction.accept(&mut receiver, &delivery).await?;
    transaction.rollback().await?;
    say("after the rollback of an accept", next(&mut receiver).await?);

    sender.send("taken for good".to_string()).await?;
    let transaction = Transaction::declare(&controller, None).await?;
    let delivery = receiver.recv::<String>().await?;
    transaction.accept(&mut receiver, &delivery).await?;
    transaction.commit().await?;
    say("after the commit of an accept", next(&mut receiver).await?);

    let owned = OwnedTransaction::declare(&mut session, "owned", None).await?;
    owned.post(&mut sender, "owned".to_string()).await?;
    owned.commit().await?;
    say("after an owned commit", next(&mut receiver).await?);

    let dropped = OwnedTransaction::declare(&mut session, "dropped", None).await?;
    dropped.post(&mut sender, "dropped".to_string()).await?;
    drop(dropped);
    say("after a drop", next(&mut receiver).await?);

    controller.close().await?;
    sender.close().await?;
    receiver.close().await?;
    session.end().await?;
    connection.close().await?;
    Ok(())
}

/// The next message's text within half a second, accepted; null if none comes.
async fn next(receiver: &mut Receiver) -> Result<Option<String>, Failure> {
    match timeout(Duration::from_millis(500), receiver.recv::<String>()).await {
        Err(_) => Ok(None),
        Ok(came) => {
            let delivery = came?;
            receiver.accept(&delivery).await?;
            Ok(Some(delivery.body().clone()))
        }
    }
}

fn say(step: &str, got: Option<String>) {
    println!("{}", json!({"step": step, "got": got}));
}
