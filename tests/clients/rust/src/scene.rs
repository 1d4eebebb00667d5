//! What every feature is made of: connections of its own, links on them, messages with a text, and failures
//! that say what was expected and what came.

use std::fmt::{Debug, Display};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::DeliveryFut;
use fe2o3_amqp::link::{
    CreditMode, LinkStateError, ReceiverAttachError, RecvError, SendError, SenderAttachError,
};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{self, AmqpError, ErrorCondition, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    AmqpValue, Body, Message, Modified, Outcome, Source, Target, TerminusDurability,
    TerminusExpiryPolicy,
};
use fe2o3_amqp::types::primitives::{Array, Symbol, Value};
use fe2o3_amqp::{Connection, Delivery, Receiver, Sender, Session};
use fe2o3_amqp_ws::WebSocketStream;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long something that has to come may take; and how long nothing has to come.
pub const ARRIVAL: Duration = Duration::from_secs(5);
pub const QUIET: Duration = Duration::from_millis(500);
/// How often a refusal that the library kept to itself is asked for again.
const UNTOLD: usize = 50;

pub type Text = Message<Body<Value>>;
pub type Came = Delivery<Body<Value>>;

/// What didn't hold.
#[derive(Debug)]
pub struct Failure(pub String);

pub type Held = Result<(), Failure>;

pub fn fail<T>(why: impl Display) -> Result<T, Failure> {
    Err(Failure(why.to_string()))
}

/// Turns a library's error into what was expected instead of it.
pub trait Expect<T> {
    fn expect_to(self, expected: &str) -> Result<T, Failure>;
}

impl<T, E: Debug> Expect<T> for Result<T, E> {
    fn expect_to(self, expected: &str) -> Result<T, Failure> {
        self.map_err(|came| Failure(format!("expected {expected}, came: {came:?}")))
    }
}

pub fn same<T: PartialEq + Debug>(came: T, expected: T, what: &str) -> Held {
    if came == expected {
        return Ok(());
    }
    fail(format!("expected {what} {expected:?}, came {came:?}"))
}

/// One feature's run and the connections it opened.
pub struct Scene {
    pub prefix: String,
    links: AtomicU32,
    lines: Mutex<Vec<Line>>,
}

/// A connection, as the feature and its scene share it; the socket cuts it without a word.
#[derive(Clone)]
struct Line {
    connection: Arc<tokio::sync::Mutex<ConnectionHandle<()>>>,
    socket: Arc<std::net::TcpStream>,
}

impl Line {
    async fn close(&self) {
        let _ = timeout(Duration::from_secs(1), async {
            let _ = self.connection.lock().await.close().await;
        })
        .await;
        self.cut();
    }

    fn cut(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Scene {
    pub fn new(prefix: &str) -> Scene {
        Scene {
            prefix: prefix.to_string(),
            links: AtomicU32::new(0),
            lines: Mutex::new(Vec::new()),
        }
    }

    pub fn at(&self, address: &str) -> String {
        format!("{}.{address}", self.prefix)
    }

    fn unique(&self, what: &str) -> String {
        let number = self.links.fetch_add(1, Ordering::Relaxed);
        format!("{}-{what}-{}-{number}", self.prefix, std::process::id())
    }

    /// Closes whatever the feature opened, with a word where the peer still listens.
    pub async fn strike(&self) {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap());
        for line in lines {
            line.close().await;
        }
    }

    pub async fn connect(&self) -> Result<Peer<'_>, Failure> {
        let container = self.unique("container");
        self.connect_as(&container).await
    }

    pub async fn connect_as(&self, container: &str) -> Result<Peer<'_>, Failure> {
        self.connect_idle(container, None).await
    }

    /// Asks the peer for a frame within each `idle_ms` milliseconds.
    pub async fn connect_idle(
        &self,
        container: &str,
        idle_ms: Option<u32>,
    ) -> Result<Peer<'_>, Failure> {
        let (stream, socket) = dial("URL").await?;
        let mut builder = Connection::builder()
            .container_id(container)
            .sasl_profile(SaslProfile::Anonymous);
        if let Some(idle_ms) = idle_ms {
            builder = builder.idle_time_out(idle_ms);
        }
        let opened = builder.open_with_stream(stream).await;
        self.begin(opened.expect_to("an open connection")?, socket)
            .await
    }

    pub async fn connect_websocket(&self) -> Result<Peer<'_>, Failure> {
        let (stream, socket) = dial("WS_URL").await?;
        let stream = WebSocketStream::connect_with_stream(variable("WS_URL")?, stream)
            .await
            .expect_to("a WebSocket")?;
        let opened = Connection::builder()
            .container_id(self.unique("container"))
            .sasl_profile(SaslProfile::Anonymous)
            .open_with_stream(stream)
            .await;
        self.begin(opened.expect_to("an open connection")?, socket)
            .await
    }

    async fn begin(
        &self,
        mut connection: ConnectionHandle<()>,
        socket: std::net::TcpStream,
    ) -> Result<Peer<'_>, Failure> {
        let session = Session::begin(&mut connection).await;
        let line = Line {
            connection: Arc::new(tokio::sync::Mutex::new(connection)),
            socket: Arc::new(socket),
        };
        self.lines.lock().unwrap().push(line.clone());
        Ok(Peer {
            scene: self,
            line,
            session: session.expect_to("a session")?,
        })
    }
}

fn variable(name: &str) -> Result<String, Failure> {
    std::env::var(name).expect_to(&format!("the variable {name}"))
}

/// A socket to the host of that variable's URL, and a second handle of it.
async fn dial(name: &str) -> Result<(TcpStream, std::net::TcpStream), Failure> {
    let url = variable(name)?;
    let host = url
        .split("://")
        .nth(1)
        .unwrap_or("")
        .split('/')
        .next()
        .unwrap_or("");
    let stream = TcpStream::connect(host).await.expect_to("a connection")?;
    let socket = stream.into_std().expect_to("a socket")?;
    let second = socket.try_clone().expect_to("a second handle")?;
    Ok((TcpStream::from_std(socket).expect_to("a socket")?, second))
}

/// One connection and the session in use on it. Links that are dropped are closed by the library, so they have
/// to outlive what should only detach them.
pub struct Peer<'a> {
    pub scene: &'a Scene,
    line: Line,
    session: SessionHandle<()>,
}

impl Peer<'_> {
    pub async fn close(&self) {
        self.line.close().await;
    }

    /// Says close and waits for the answer.
    pub async fn leave(self) -> Held {
        self.forget();
        let closed = self.line.connection.lock().await.close().await;
        closed.expect_to("a closed connection")
    }

    /// Goes without a word.
    pub fn cut(self) {
        self.forget();
        self.line.cut();
    }

    fn forget(&self) {
        let mut lines = self.scene.lines.lock().unwrap();
        lines.retain(|line| !Arc::ptr_eq(&line.connection, &self.line.connection));
    }

    /// Ends the session and begins another.
    pub async fn begin_again(&mut self) -> Held {
        self.end().await?;
        let mut connection = self.line.connection.lock().await;
        self.session = Session::begin(&mut connection)
            .await
            .expect_to("a session")?;
        Ok(())
    }

    pub async fn end(&mut self) -> Held {
        self.session.end().await.expect_to("an ended session")
    }

    pub async fn sender(&mut self, address: &str) -> Result<Sender, Failure> {
        let target = Target::builder().address(address).build();
        self.sender_to(target).await
    }

    pub async fn sender_to(&mut self, target: Target) -> Result<Sender, Failure> {
        let name = self.scene.unique("sender");
        self.sender_with(&name, target, SenderSettleMode::Mixed)
            .await
    }

    pub async fn sender_with(
        &mut self,
        name: &str,
        target: Target,
        mode: SenderSettleMode,
    ) -> Result<Sender, Failure> {
        let expected = format!("a sender to {:?}", target.address);
        Sender::builder()
            .name(name)
            .target(target)
            .sender_settle_mode(mode)
            .attach(&mut self.session)
            .await
            .expect_to(&expected)
    }

    pub async fn receiver(&mut self, address: &str) -> Result<Receiver, Failure> {
        self.receiver_from(from(address), 100).await
    }

    pub async fn receiver_from(
        &mut self,
        source: Source,
        credit: u32,
    ) -> Result<Receiver, Failure> {
        let name = self.scene.unique("receiver");
        self.receiver_with(&name, source, CreditMode::Auto(credit))
            .await
    }

    /// A receiver that gets `credit` messages and no more, whatever is settled.
    pub async fn counted(&mut self, source: Source, credit: u32) -> Result<Receiver, Failure> {
        let name = self.scene.unique("receiver");
        self.counted_with(&name, source, credit).await
    }

    pub async fn counted_with(
        &mut self,
        name: &str,
        source: Source,
        credit: u32,
    ) -> Result<Receiver, Failure> {
        let mut receiver = self.receiver_with(name, source, CreditMode::Manual).await?;
        receiver
            .set_credit(credit)
            .await
            .expect_to("credit to give")?;
        Ok(receiver)
    }

    pub async fn receiver_with(
        &mut self,
        name: &str,
        source: Source,
        credit: CreditMode,
    ) -> Result<Receiver, Failure> {
        let expected = format!("a receiver from {:?}", source.address);
        Receiver::builder()
            .name(name)
            .source(source)
            .credit_mode(credit)
            .attach(&mut self.session)
            .await
            .expect_to(&expected)
    }

    /// A receiver of settled messages.
    pub async fn at_most_once(&mut self, source: Source, credit: u32) -> Result<Receiver, Failure> {
        Receiver::builder()
            .name(self.scene.unique("receiver"))
            .source(source)
            .sender_settle_mode(SenderSettleMode::Settled)
            .credit_mode(CreditMode::Auto(credit))
            .attach(&mut self.session)
            .await
            .expect_to("an at-most-once receiver")
    }

    /// Goes on in another session; the one before ends by itself if it hasn't.
    async fn renew(&mut self) -> Result<(), Failure> {
        let begun = Session::begin(&mut *self.line.connection.lock().await).await;
        self.session = begun.expect_to("another session")?;
        Ok(())
    }

    /// Attaches and says with which condition that was refused; where no refusal comes the link is closed again.
    ///
    /// Where the refusing attach and detach are read at once, the library's session may answer the detach before
    /// its link has read the attach; the link then says `IllegalState` in place of the condition, and what it
    /// sends beside the session's answer may end the session. That is asked again, in a session of its own.
    pub async fn try_receiver(&mut self, source: Source) -> Result<String, Failure> {
        let attached = self.attach_receiver(&source).await?;
        let mut receiver = match attached {
            Ok(receiver) => receiver,
            Err(ReceiverAttachError::RemoteClosedWithError(error)) => return Ok(condition(&error)),
            Err(other) => return Ok(format!("no condition: {other:?}")),
        };
        if let Ok(Err(error)) = timeout(QUIET, receiver.recv::<Body<Value>>()).await {
            return Ok(match error {
                RecvError::LinkStateError(LinkStateError::RemoteClosedWithError(error)) => {
                    condition(&error)
                }
                other => format!("no condition: {other:?}"),
            });
        }
        receiver.close().await.expect_to("a closed receiver")?;
        Ok("no refusal".to_string())
    }

    async fn attach_receiver(
        &mut self,
        source: &Source,
    ) -> Result<Result<Receiver, ReceiverAttachError>, Failure> {
        for _ in 0..UNTOLD {
            let came = Receiver::builder()
                .name(self.scene.unique("receiver"))
                .source(source.clone())
                .attach(&mut self.session)
                .await;
            if !matches!(came, Err(ReceiverAttachError::IllegalState)) {
                return Ok(came);
            }
            self.renew().await?;
        }
        fail("a refusal that the library tells of")
    }

    /// As `try_receiver`.
    pub async fn try_sender(&mut self, address: &str) -> Result<String, Failure> {
        let attached = self.attach_sender(address).await?;
        let mut sender = match attached {
            Ok(sender) => sender,
            Err(SenderAttachError::RemoteClosedWithError(error)) => return Ok(condition(&error)),
            Err(other) => return Ok(format!("no condition: {other:?}")),
        };
        match timeout(ARRIVAL, sender.send(text("unwanted"))).await {
            Ok(Err(SendError::LinkStateError(LinkStateError::RemoteClosedWithError(error)))) => {
                return Ok(condition(&error))
            }
            Ok(Err(other)) => return Ok(format!("no condition: {other:?}")),
            _ => {}
        }
        sender.close().await.expect_to("a closed sender")?;
        Ok("no refusal".to_string())
    }

    async fn attach_sender(
        &mut self,
        address: &str,
    ) -> Result<Result<Sender, SenderAttachError>, Failure> {
        for _ in 0..UNTOLD {
            let came = Sender::builder()
                .name(self.scene.unique("sender"))
                .target(Target::builder().address(address).build())
                .attach(&mut self.session)
                .await;
            if !matches!(came, Err(SenderAttachError::IllegalState)) {
                return Ok(came);
            }
            self.renew().await?;
        }
        fail("a refusal that the library tells of")
    }
}

pub fn refused(came: &str, expected: &AmqpError, what: &str) -> Held {
    let expected = Symbol::from(expected).0;
    if came == expected {
        return Ok(());
    }
    fail(format!(
        "expected {what} refused with {expected}, came {came}"
    ))
}

pub fn condition(error: &definitions::Error) -> String {
    match &error.condition {
        ErrorCondition::AmqpError(condition) => Symbol::from(condition).0,
        ErrorCondition::ConnectionError(condition) => Symbol::from(condition).0,
        ErrorCondition::SessionError(condition) => Symbol::from(condition).0,
        ErrorCondition::LinkError(condition) => Symbol::from(condition).0,
        ErrorCondition::TransactionError(condition) => Symbol::from(condition).0,
        ErrorCondition::Custom(condition) => condition.0.clone(),
    }
}

pub fn from(address: &str) -> Source {
    Source::builder().address(address).build()
}

pub fn capable(mut source: Source, capability: &str) -> Source {
    source.capabilities = Some(Array(vec![Symbol::from(capability)]));
    source
}

/// A durable subscription's terminus; its link bears the subscription's name.
pub fn subscription(address: &str) -> Source {
    Source::builder()
        .address(address)
        .durable(TerminusDurability::UnsettledState)
        .expiry_policy(TerminusExpiryPolicy::Never)
        .build()
}

pub fn filtered(address: &str, name: &str, code: u64, value: impl Into<Value>) -> Source {
    let filter = Described {
        descriptor: Descriptor::Code(code),
        value: value.into(),
    };
    Source::builder()
        .address(address)
        .add_to_filter(name, filter)
        .build()
}

pub fn text(body: impl Into<String>) -> Text {
    Message {
        header: None,
        delivery_annotations: None,
        message_annotations: None,
        properties: None,
        application_properties: None,
        body: Body::Value(AmqpValue(Value::String(body.into()))),
        footer: None,
    }
}

pub fn body(came: &Came) -> &str {
    match came.body() {
        Body::Value(AmqpValue(Value::String(body))) => body,
        _ => "(no text)",
    }
}

pub fn bodies(came: &[Came]) -> Vec<String> {
    came.iter().map(|each| body(each).to_string()).collect()
}

pub fn delivery_count(came: &Came) -> u32 {
    came.message()
        .header
        .as_ref()
        .map_or(0, |header| header.delivery_count)
}

pub fn failed_delivery() -> Modified {
    Modified {
        delivery_failed: Some(true),
        undeliverable_here: None,
        message_annotations: None,
    }
}

/// The texts PREFIX0 … PREFIXn-1.
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

pub async fn send<S: AsRef<str>>(sender: &mut Sender, texts: &[S]) -> Held {
    send_messages(sender, texts.iter().map(|each| text(each.as_ref()))).await
}

/// Sends all at once and then waits until each is accepted.
pub async fn send_messages(sender: &mut Sender, messages: impl IntoIterator<Item = Text>) -> Held {
    let mut sent: Vec<DeliveryFut<Result<Outcome, SendError>>> = Vec::new();
    for message in messages {
        sent.push(sender.send_batchable(message).await.expect_to("to send")?);
    }
    for each in sent {
        accepted(each.await.expect_to("an outcome")?)?;
    }
    Ok(())
}

pub fn accepted(outcome: Outcome) -> Held {
    match outcome {
        Outcome::Accepted(_) => Ok(()),
        other => fail(format!("expected accepted, came {other:?}")),
    }
}

/// Receives `count` messages and settles none.
pub async fn take(receiver: &mut Receiver, count: usize) -> Result<Vec<Came>, Failure> {
    let mut came = Vec::new();
    let deadline = Instant::now() + ARRIVAL;
    while came.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left, receiver.recv()).await {
            Ok(one) => came.push(one.expect_to("a message")?),
            Err(_) => {
                return fail(format!(
                    "expected {count} messages, came {:?}",
                    bodies(&came)
                ))
            }
        }
    }
    Ok(came)
}

pub async fn take_one(receiver: &mut Receiver) -> Result<Came, Failure> {
    Ok(take(receiver, 1).await?.remove(0))
}

pub async fn accept(receiver: &Receiver, came: &[Came]) -> Held {
    for each in came {
        receiver.accept(each).await.expect_to("to accept")?;
    }
    Ok(())
}

/// Holds when no message comes for a while.
pub async fn nothing(receiver: &mut Receiver) -> Held {
    match timeout(QUIET, receiver.recv::<Body<Value>>()).await {
        Err(_) => Ok(()),
        Ok(Ok(came)) => fail(format!(
            "expected no message within {QUIET:?}, came {}",
            body(&came)
        )),
        Ok(Err(error)) => fail(format!(
            "expected no message within {QUIET:?}, came: {error:?}"
        )),
    }
}

/// Accepts what comes to any of the receivers until `total` came and then nothing for a while; returns each
/// one's texts.
pub async fn gather(
    total: usize,
    receivers: &mut [&mut Receiver],
) -> Result<Vec<Vec<String>>, Failure> {
    let mut found = vec![Vec::new(); receivers.len()];
    let mut count = 0;
    let mut last = Instant::now();
    while last.elapsed() < if count < total { ARRIVAL } else { QUIET } {
        for (receiver, texts) in receivers.iter_mut().zip(&mut found) {
            if let Ok(one) = timeout(Duration::from_millis(10), receiver.recv()).await {
                let one = one.expect_to("messages")?;
                receiver.accept(&one).await.expect_to("to accept")?;
                texts.push(body(&one).to_string());
                count += 1;
                last = Instant::now();
            }
        }
    }
    Ok(found)
}

/// Holds when every one of the texts came to exactly one receiver and each receiver got `share`.
pub fn divided(found: &[Vec<String>], expected: &[String], share: usize) -> Held {
    if found.iter().any(|texts| texts.len() != share) {
        return fail(format!(
            "expected {share} messages for each receiver, came {found:?}"
        ));
    }
    let mut all: Vec<&String> = found.iter().flatten().collect();
    let mut wanted: Vec<&String> = expected.iter().collect();
    all.sort();
    wanted.sort();
    if all == wanted {
        return Ok(());
    }
    fail(format!(
        "expected each of {expected:?} once, came {found:?}"
    ))
}
