//! Answers with hand-outs that arrive where nobody is any more.
//!
//! Owns how a connection that has ended tells whether its last answer was read. Must never take back what a worker may
//! have: in doubt it has it, and its lease decides.
//!
//! A worker that is killed while it waits closes its connection, and the server drops its request as soon as it hears of
//! that. If a message comes just before, the answer crosses the news on its way. The worker's system then refuses the
//! answer: first came the end of its stream, then a reset. That is no other situation: who closes a connection after
//! having read the answer sends no reset, and who breaks one off (some proxies do, to save the long way) sends no end
//! before it. So only this pair, or an answer that could not even be written whole, takes hand-outs back.

use millpond_core::identity::Receipt;
use millpond_engine::handle::Handle;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// How long after an answer the reset may come: the way there and back.
const WAY: Duration = Duration::from_secs(1);

/// A connection that can be asked how it ended once nobody speaks on it any more.
#[derive(Debug, Clone)]
pub(crate) struct Socket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stream: TcpStream,
    /// Whether the latest answer with hand-outs has left whole.
    has_left: AtomicBool,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Inner { stream, has_left: AtomicBool::new(true) }))
    }

    /// Notes that an answer with hand-outs is about to be written.
    pub(crate) fn begins_answer(&self) {
        self.0.has_left.store(false, Ordering::Relaxed);
    }

    /// Whether what was written last, since `answered`, arrived where nobody was any more. What may still come is waited
    /// for until `stops` is ready.
    async fn reached_nobody(&self, answered: Instant, stops: impl Future<Output = ()>) -> bool {
        if !self.0.has_left.load(Ordering::Relaxed) {
            return true;
        }
        let patience = WAY.saturating_sub(answered.elapsed());
        // What counts is the error itself.
        tokio::select! {
            _ = timeout(patience, self.0.stream.ready(Interest::ERROR)) => {}
            () = stops => {}
        }
        // A reset after the end of the stream is a broken pipe; one without it, a connection reset.
        matches!(self.0.stream.take_error(), Ok(Some(error)) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Writes by `write`, whenever that is possible.
    fn poll_write_by(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(context))?;
            match write(&self.0.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &self.0.stream;
        loop {
            ready!(stream.poll_read_ready(context))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Asked for once everything has been written, an answer whole.
        self.0.has_left.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&self.0.stream, rustix::net::Shutdown::Write) {
            // Whoever has gone already needs no end.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

/// The hand-outs of an answer.
#[derive(Debug, Clone)]
pub(crate) struct HandedOver {
    receipts: Arc<[Receipt]>,
    answered: Instant,
}

impl HandedOver {
    /// Those of an answer that goes out now.
    pub(crate) fn new(receipts: Arc<[Receipt]>) -> Self {
        Self { receipts, answered: Instant::now() }
    }

    /// Gives them back, untouched, if `socket`, on which nobody speaks any more, ended without anybody having read them.
    pub(crate) async fn take_back_if_nobody_was_there(
        self,
        socket: &Socket,
        handle: &Handle,
        stops: impl Future<Output = ()>,
    ) {
        if socket.reached_nobody(self.answered, stops).await {
            tracing::debug!(
                hand_outs = self.receipts.len(),
                "an answer reached nobody; its hand-outs are taken back"
            );
            for &receipt in &*self.receipts {
                handle.undelivered(receipt);
            }
        }
    }
}
