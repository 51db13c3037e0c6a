//! Memory accounts: what is charged, what was charged at most, what may be.

use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    used: u64,
    peak: u64,
}

/// An account of memory. A handle: clones are the same account. What is charged may be given back on any thread.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Account {
    balance: Arc<Mutex<Balance>>,
    limit: u64,
}

/// So many bytes charged to an account, given back when dropped.
#[derive(Debug)]
pub(in crate::sim) struct Charge {
    account: Account,
    bytes: u64,
}

impl Account {
    /// An account with a limit, `None` for none (B).
    pub(in crate::sim) fn new(limit: Option<u64>) -> Account {
        Account { balance: Arc::default(), limit: limit.unwrap_or(u64::MAX) }
    }

    /// Charges so many bytes; what is left if they do not fit.
    pub(in crate::sim) fn charge(&self, bytes: u64) -> Result<Charge, u64> {
        let mut balance = self.lock();
        let left = self.limit.saturating_sub(balance.used);
        if bytes > left {
            return Err(left);
        }
        balance.used += bytes;
        balance.peak = balance.peak.max(balance.used);
        Ok(Charge { account: self.clone(), bytes })
    }

    /// Bytes charged now.
    pub(in crate::sim) fn used(&self) -> u64 {
        self.lock().used
    }

    /// The most bytes charged so far.
    pub(in crate::sim) fn peak(&self) -> u64 {
        self.lock().peak
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Balance> {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.lock().used -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_remembers_its_peak_and_keeps_its_limit() {
        let account = Account::new(Some(100));
        let a = account.charge(60).expect("fits");
        assert_eq!(account.charge(41).expect_err("too much"), 40);
        let b = account.charge(40).expect("fits exactly");
        drop(a);
        assert_eq!((account.used(), account.peak()), (40, 100));
        drop(b);
        assert_eq!(account.used(), 0);
    }
}
