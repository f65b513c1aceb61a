//! Who hears of work that arrives: the streams of autoscalers that wait for a queue to have some.
//!
//! Owns who listens to which queue. Must never cost anything where nobody listens.

use millpond_core::name::Name;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use tokio::sync::watch;

/// Those who listen, by queue.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// How many there are.
    listeners: AtomicUsize,
    queues: RwLock<HashMap<Name, Heard>>,
}

#[derive(Debug)]
struct Heard {
    sender: watch::Sender<()>,
    listeners: usize,
}

impl Arrivals {
    /// Something has arrived in a queue.
    pub(crate) fn came(&self, queue: &Name) {
        // Whoever has begun to listen in this very moment looks at the queue first.
        if self.listeners.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(heard) = self.queues.read().expect("no holder of this lock panics").get(queue) {
            heard.sender.send_replace(());
        }
    }

    /// Listens to a queue from now on.
    pub(crate) fn watch(this: &Arc<Self>, queue: &Name) -> Watch {
        let mut queues = this.queues.write().expect("no holder of this lock panics");
        let heard = queues
            .entry(queue.clone())
            .or_insert_with(|| Heard { sender: watch::Sender::new(()), listeners: 0 });
        heard.listeners += 1;
        this.listeners.fetch_add(1, Ordering::Relaxed);
        Watch { receiver: heard.sender.subscribe(), arrivals: Arc::clone(this), queue: queue.clone() }
    }
}

/// One that listens; ends with its life.
#[derive(Debug)]
pub(crate) struct Watch {
    receiver: watch::Receiver<()>,
    arrivals: Arc<Arrivals>,
    queue: Name,
}

impl Watch {
    /// Waits until something has arrived since the last time.
    pub(crate) async fn came(&mut self) {
        // The sender lives as long as this does.
        let _ = self.receiver.changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut queues = self.arrivals.queues.write().expect("no holder of this lock panics");
        if let Some(heard) = queues.get_mut(&self.queue) {
            heard.listeners -= 1;
            if heard.listeners == 0 {
                queues.remove(&self.queue);
            }
        }
        self.arrivals.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Arrivals;
    use futures_util::FutureExt as _;
    use millpond_core::name::Name;
    use std::sync::Arc;

    #[test]
    fn whoever_listens_hears_of_its_queue_alone_and_leaves_nothing_behind() {
        let arrivals = Arc::new(Arrivals::default());
        let [one, other] = ["one", "other"].map(|name| Name::new(name).unwrap());
        arrivals.came(&one);
        let mut watches = [Arrivals::watch(&arrivals, &one), Arrivals::watch(&arrivals, &one)];
        assert!(watches[0].came().now_or_never().is_none(), "what came before was seen");
        arrivals.came(&other);
        assert!(watches[0].came().now_or_never().is_none());
        arrivals.came(&one);
        arrivals.came(&one);
        for watch in &mut watches {
            assert!(watch.came().now_or_never().is_some());
            assert!(watch.came().now_or_never().is_none(), "twice before one looks is once");
        }
        drop(watches);
        assert!(arrivals.queues.read().unwrap().is_empty());
        assert_eq!(arrivals.listeners.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
