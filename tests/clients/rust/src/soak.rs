//! Random legal things, from a seeded generator, until the time is over; then whatever is open is closed.
//!
//! Only what the broker may always do is forgiven: not to send, and not to give an outcome, in the time we wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use fe2o3_amqp::link::delivery::DeliveryInfo;
use fe2o3_amqp::link::CreditMode;
use fe2o3_amqp::types::definitions::{self, AmqpError, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    ApplicationProperties, Batch, Body, Data, DistributionMode, Header, Modified, Source, Target,
};
use fe2o3_amqp::types::primitives::Symbol;
use fe2o3_amqp::{Receiver, Sender};
use serde_json::json;
use tokio::time::timeout;

use crate::random::Random;
use crate::scene::*;

const PEERS: usize = 4;
const LINKS: usize = 6; // of each direction on one connection
const HELD: usize = 50;
const PATIENCE: Duration = Duration::from_millis(20); // for a message that may not come
const OUTCOME_IN: Duration = Duration::from_secs(2);
const ANSWER_IN: Duration = Duration::from_secs(15); // for what the broker has to answer

pub async fn run(prefix: &str, seconds: f64, seed: u64) -> Held {
    let scene = Scene::new(prefix);
    let mut soaker = Soaker {
        scene: &scene,
        random: Random(seed),
        slots: (0..PEERS).map(|_| None).collect(),
        kept: BTreeMap::new(),
    };
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut done = 0;
    while Instant::now() < until {
        soaker.act().await?;
        done += 1;
    }
    soaker.finish().await?;
    println!("{}", json!({"done": done}));
    Ok(())
}

/// One run. Slots are the containers, one connection each at most, so that a durable subscription has one place
/// where it can be attached.
struct Soaker<'a> {
    scene: &'a Scene,
    random: Random,
    slots: Vec<Option<Slot<'a>>>,
    /// Durable subscriptions that weren't closed yet: container and link name, with the address.
    kept: BTreeMap<(String, String), String>,
}

/// The links stand before the peer, so that they are closed before its session ends.
struct Slot<'a> {
    senders: Vec<Sender>,
    receivers: Vec<Holder>,
    peer: Peer<'a>,
    container: String,
}

struct Holder {
    receiver: Receiver,
    manual: bool,
    subscription: Option<String>,
    held: Vec<DeliveryInfo>,
}

async fn answered<T, E: std::fmt::Debug>(
    answer: impl Future<Output = Result<T, E>>,
    expected: &str,
) -> Result<T, Failure> {
    timeout(ANSWER_IN, answer)
        .await
        .expect_to(expected)?
        .expect_to(expected)
}

impl<'a> Soaker<'a> {
    /// Does one thing. What it draws may not be possible just now; then it connects or does nothing.
    async fn act(&mut self) -> Held {
        let index = self.random.below(PEERS);
        let Some(mut slot) = self.slots[index].take() else {
            self.slots[index] = Some(self.connect(index).await?);
            return Ok(());
        };
        match self.random.below(1000) {
            0..60 => self.attach_sender(&mut slot).await?,
            60..140 => self.attach_receiver(&mut slot).await?,
            140..480 => self.send(&mut slot).await?,
            480..740 => self.receive(&mut slot).await?,
            740..920 => self.settle(&mut slot).await?,
            920..940 => self.close_sender(&mut slot).await?,
            940..960 => self.close_receiver(&mut slot).await?,
            960..980 => self.detach(&mut slot).await?,
            980..988 => {
                slot.peer.begin_again().await?;
                slot.senders.clear();
                slot.receivers.clear();
            }
            988..994 => return slot.leave().await,
            _ => {
                slot.peer.cut();
                return Ok(());
            }
        }
        self.slots[index] = Some(slot);
        Ok(())
    }

    async fn connect(&mut self, index: usize) -> Result<Slot<'a>, Failure> {
        let container = format!("{}-rust-soak-{index}", self.scene.prefix);
        Ok(Slot {
            senders: Vec::new(),
            receivers: Vec::new(),
            peer: self.scene.connect_as(&container).await?,
            container,
        })
    }

    fn queue(&mut self) -> String {
        self.scene.at(&format!("soak{}", self.random.below(4)))
    }

    fn topic(&mut self) -> String {
        self.scene.at(&format!("news.soak{}", self.random.below(3)))
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.random.below(chances) == 0
    }

    async fn attach_sender(&mut self, slot: &mut Slot<'a>) -> Held {
        if slot.senders.len() == LINKS {
            return Ok(());
        }
        let address = if self.one_in(3) {
            self.topic()
        } else {
            self.queue()
        };
        let mode = match self.random.below(4) {
            0 => SenderSettleMode::Settled,
            1 => SenderSettleMode::Unsettled,
            _ => SenderSettleMode::Mixed,
        };
        let name = format!("sender{}", self.random.next());
        let target = Target::builder().address(address).build();
        slot.senders
            .push(slot.peer.sender_with(&name, target, mode).await?);
        Ok(())
    }

    async fn attach_receiver(&mut self, slot: &mut Slot<'a>) -> Held {
        if slot.receivers.len() == LINKS {
            return Ok(());
        }
        let manual = self.one_in(3);
        let credit = 1 + self.random.below(20) as u32;
        let mut subscribed = None;
        let mut source = from(&self.queue());
        match self.random.below(6) {
            0 => source.distribution_mode = Some(DistributionMode::Copy),
            1 => source = from(&self.topic()),
            2 => {
                let number = self.random.below(3);
                let address = self.scene.at(&format!("news.soak{number}"));
                let name = format!("sub{number}");
                source = subscription(&address);
                let attached = |each: &Holder| each.subscription.as_ref() == Some(&name);
                if slot.receivers.iter().any(attached) {
                    return Ok(()); // A connection's link names are its own.
                }
                let key = (slot.container.clone(), name.clone());
                self.kept.insert(key, address);
                subscribed = Some(name);
            }
            3 => {
                let receiver = slot.peer.at_most_once(source, credit).await?;
                slot.receivers.push(Holder::new(receiver, false, None));
                return Ok(());
            }
            4 => source = Source::builder().dynamic(true).build(),
            _ => {}
        }
        let name = match &subscribed {
            Some(name) => name.clone(),
            None => format!("receiver{}", self.random.next()),
        };
        let mode = if manual {
            CreditMode::Manual
        } else {
            CreditMode::Auto(credit)
        };
        let receiver = slot.peer.receiver_with(&name, source, mode).await?;
        slot.receivers
            .push(Holder::new(receiver, manual, subscribed));
        Ok(())
    }

    async fn send(&mut self, slot: &mut Slot<'a>) -> Held {
        let Some(index) = self.draw(slot.senders.len()) else {
            return Ok(());
        };
        let mut header = Header {
            durable: self.one_in(2),
            ..Default::default()
        };
        header.priority = (self.random.below(10) as u8).into();
        if self.one_in(4) {
            header.ttl = Some(1 + self.random.below(1000) as u32);
        }
        let largest = if self.one_in(20) { 200_000 } else { 300 };
        let size = self.random.below(largest);
        let mut message = text("");
        message.header = Some(header);
        message.application_properties = Some(
            ApplicationProperties::builder()
                .insert("number", self.random.below(100) as i32)
                .build(),
        );
        message.body = Body::Data(Batch::new(vec![Data::from(vec![0; size])]));
        match timeout(OUTCOME_IN, slot.senders[index].send(message)).await {
            Ok(outcome) => outcome.map(|_| ()).expect_to("an outcome"),
            Err(_) => Ok(()),
        }
    }

    async fn receive(&mut self, slot: &mut Slot<'a>) -> Held {
        let Some(index) = self.draw(slot.receivers.len()) else {
            return Ok(());
        };
        let more = self.one_in(3).then(|| 1 + self.random.below(10) as u32);
        let holder = &mut slot.receivers[index];
        if holder.held.len() > HELD {
            return Ok(());
        }
        if let (true, Some(more)) = (holder.manual, more) {
            let credit = holder.receiver.credit() + more;
            holder
                .receiver
                .set_credit(credit)
                .await
                .expect_to("credit to give")?;
        }
        if let Ok(came) = timeout(PATIENCE, holder.receiver.recv()).await {
            let came: Came = came.expect_to("a message")?;
            holder.held.push(came.into());
        }
        Ok(())
    }

    async fn settle(&mut self, slot: &mut Slot<'a>) -> Held {
        let Some(index) = self.draw(slot.receivers.len()) else {
            return Ok(());
        };
        let holder = &mut slot.receivers[index];
        let Some(index) = self.draw(holder.held.len()) else {
            return Ok(());
        };
        let info = holder.held.swap_remove(index);
        let receiver = &holder.receiver;
        let error = definitions::Error::new(AmqpError::InternalError, None, None);
        match self.random.below(10) {
            0 => receiver.release(info).await,
            1 => receiver.reject(info, error).await,
            2 => receiver.reject(info, None).await,
            3 => receiver.modify(info, failed_delivery()).await,
            4 => receiver.modify(info, undeliverable_here()).await,
            _ => receiver.accept(info).await,
        }
        .expect_to("to settle")
    }

    async fn close_sender(&mut self, slot: &mut Slot<'a>) -> Held {
        let Some(index) = self.draw(slot.senders.len()) else {
            return Ok(());
        };
        let sender = slot.senders.swap_remove(index);
        answered(sender.close(), "a closed sender").await
    }

    /// Sometimes the link is drained first.
    async fn close_receiver(&mut self, slot: &mut Slot<'a>) -> Held {
        let Some(index) = self.draw(slot.receivers.len()) else {
            return Ok(());
        };
        let mut holder = slot.receivers.swap_remove(index);
        if self.one_in(2) {
            holder.receiver.drain().await.expect_to("to drain")?;
        }
        if let Some(name) = holder.subscription {
            self.kept.remove(&(slot.container.clone(), name));
        }
        answered(holder.receiver.close(), "a closed receiver").await
    }

    /// Leaves a durable subscription, which isn't closed then.
    async fn detach(&mut self, slot: &mut Slot<'a>) -> Held {
        let durable = |each: &Holder| each.subscription.is_some();
        let Some(index) = slot.receivers.iter().position(durable) else {
            return Ok(());
        };
        let receiver = slot.receivers.swap_remove(index).receiver;
        let detached = async {
            receiver
                .detach()
                .await
                .map(|_| ())
                .map_err(|(_, error)| error)
        };
        answered(detached, "a detached receiver").await
    }

    fn draw(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.random.below(count))
    }

    /// Closes every link, unsubscribes what is still subscribed, and leaves.
    async fn finish(mut self) -> Held {
        for index in 0..PEERS {
            let mut slot = match self.slots[index].take() {
                Some(slot) => slot,
                None => self.connect(index).await?,
            };
            while !slot.senders.is_empty() {
                self.close_sender(&mut slot).await?;
            }
            while !slot.receivers.is_empty() {
                self.close_receiver(&mut slot).await?;
            }
            for ((container, name), address) in std::mem::take(&mut self.kept) {
                if container != slot.container {
                    self.kept.insert((container, name), address);
                    continue;
                }
                let source = subscription(&address);
                let credit = CreditMode::Auto(1);
                let receiver = slot.peer.receiver_with(&name, source, credit).await?;
                answered(receiver.close(), "a closed receiver").await?;
            }
            slot.leave().await?;
        }
        Ok(())
    }
}

impl Slot<'_> {
    /// The session goes first: the library takes what arrives between its close and the peer's for an error.
    async fn leave(mut self) -> Held {
        self.peer.end().await?;
        self.peer.leave().await
    }
}

impl Holder {
    fn new(receiver: Receiver, manual: bool, subscription: Option<String>) -> Holder {
        Holder {
            receiver,
            manual,
            subscription,
            held: Vec::new(),
        }
    }
}

fn undeliverable_here() -> Modified {
    Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: Some(
            [(Symbol::from("x-opt-soak"), 1.into())]
                .into_iter()
                .collect(),
        ),
    }
}
