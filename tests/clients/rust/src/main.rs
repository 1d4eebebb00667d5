//! The fe2o3-amqp column of the clients' matrix; ../README.md says what each command does.
//!
//! This file knows the command line, nothing of AMQP.

mod features;
mod features_addresses;
mod features_connections;
mod features_queues;
mod features_topics;
mod notation;
mod random;
mod scene;
mod soak;
mod types;

use scene::Failure;

const USAGE: &str = "usage: client features PREFIX NAME…
       client send-types ADDRESS FILE
       client receive-types ADDRESS COUNT
       client soak PREFIX SECONDS SEED";

#[tokio::main(worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Err(Failure(why)) = command(&words).await {
        eprintln!("{why}");
        std::process::exit(1);
    }
}

async fn command(words: &[&str]) -> Result<(), Failure> {
    match words {
        ["features", prefix, names @ ..] => {
            features::run(prefix, names).await;
            Ok(())
        }
        ["send-types", address, file] => types::send(address, file).await,
        ["receive-types", address, count] => types::receive(address, number(count)?).await,
        ["soak", prefix, seconds, seed] => soak::run(prefix, number(seconds)?, number(seed)?).await,
        _ => Err(Failure(USAGE.to_string())),
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, Failure> {
    word.parse()
        .map_err(|_| Failure(format!("no number: {word}\n{USAGE}")))
}
