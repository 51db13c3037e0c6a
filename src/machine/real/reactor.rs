//! The scheduler's end of the handoff: one task that takes news of leaves and wakes those who await them.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::{Inner, home::Completion};

/// Takes news for ever, and ticks while leaves are out; see [`crate::sync::handoff`] for why.
pub(super) async fn react(machine: Rc<Inner>, tick: Duration) {
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut news = Vec::new();
    poll_fn(|cx| machine.turn(cx, timer.as_mut(), tick, &mut news)).await
}

impl Inner {
    fn turn(&self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>, tick: Duration, news: &mut Vec<Completion>) -> Poll<()> {
        self.take_news(cx, news);
        if self.leaves.borrow().out() == 0 {
            *self.dozing.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        timer.as_mut().reset(Instant::now() + tick);
        // A tick so short that it is over already is made up for in another turn.
        if timer.poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Takes all news there is. The task of `cx` is woken for the next.
    pub(super) fn take_news(&self, cx: &Context<'_>, news: &mut Vec<Completion>) {
        self.home.handoff.drain(cx, news);
        if news.is_empty() {
            return;
        }
        self.drains.set(self.drains.get() + 1);
        let given_up = self.leaves.borrow().given_up();
        for news in news.drain(..) {
            let awaiting = self.leaves.borrow_mut().arrive(&news, &mut self.recorder.borrow_mut());
            if let Some(waker) = awaiting {
                waker.wake();
            }
        }
        if given_up > 0 && self.leaves.borrow().given_up() == 0 {
            self.tasks.changed();
        }
    }

    /// Has the reactor set its timer, if it did not: a leaf is out.
    pub(super) fn keep_ticking(&self) {
        if let Some(waker) = self.dozing.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Completes when every leaf given up on has ended and every stopped task is gone, or after
    /// [`Config::stuck_after`](super::Config::stuck_after).
    pub(super) async fn quiesce(&self) {
        let mut patience = pin!(sleep_until(Instant::now() + self.stuck_after));
        let _eager = Eager::new(self);
        poll_fn(|cx| {
            if self.leaves.borrow().given_up() == 0 && self.tasks.stopping() == 0 {
                return Poll::Ready(());
            }
            self.tasks.watch(cx.waker());
            patience.as_mut().poll(cx)
        })
        .await;
    }
}

/// While somebody waits for leaves to end, every end is news at once.
struct Eager<'a>(&'a Inner);

impl<'a> Eager<'a> {
    fn new(machine: &'a Inner) -> Self {
        machine.home.handoff.set_eager(true);
        Eager(machine)
    }
}

impl Drop for Eager<'_> {
    fn drop(&mut self) {
        self.0.home.handoff.set_eager(false);
    }
}
