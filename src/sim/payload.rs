//! What can flow through a simulated machine.

use std::{future::Future, rc::Rc, sync::Arc};

use super::{
    Size,
    leaf::{Body, JobCell},
};
use crate::{
    failure::Failure,
    fault::{self, Fault},
    machine::{Encoded, Payload, Phantom, Pixels, Tags},
};

/// The encoded bytes of each sample of a simulation on which real bytes flow.
pub type Content = Arc<dyn Fn(u64) -> Result<Vec<u8>, Failure> + Send + Sync>;

/// A payload that a simulated machine can make up: [`Tags`] or [`Pixels`].
pub trait SimPayload: Payload + carried::Carried {}

impl SimPayload for Tags {}
impl SimPayload for Pixels {}

pub(super) mod carried {
    use super::*;

    /// How a payload is made up. Closed: nobody outside can name it.
    pub trait Carried: Payload {
        /// Where the bytes of a sample come from.
        type Content: 'static;

        /// Whether there are bytes, in which a decoder sees for itself that they are spoiled.
        const HAS_BYTES: bool;

        /// Carries out a read whose leaf, given what is to run at its end, delivers so many bytes.
        fn read<L: Future<Output = Result<u64, Failure>>>(
            content: &Self::Content,
            sample: u64,
            size: Size,
            leaf: impl FnOnce(Option<Rc<dyn Body>>) -> L,
        ) -> impl Future<Output = Result<Self::Bytes, Failure>>;
    }

    impl Carried for Tags {
        type Content = ();
        const HAS_BYTES: bool = false;

        async fn read<L: Future<Output = Result<u64, Failure>>>(
            (): &(),
            sample: u64,
            size: Size,
            leaf: impl FnOnce(Option<Rc<dyn Body>>) -> L,
        ) -> Result<Phantom, Failure> {
            let bytes = leaf(None).await?;
            Ok(Phantom { sample, bytes, pixels: size.pixels })
        }
    }

    impl Carried for Pixels {
        type Content = Content;
        const HAS_BYTES: bool = true;

        async fn read<L: Future<Output = Result<u64, Failure>>>(
            content: &Content,
            sample: u64,
            size: Size,
            leaf: impl FnOnce(Option<Rc<dyn Body>>) -> L,
        ) -> Result<Encoded, Failure> {
            let content = content.clone();
            let cell = JobCell::new(move |fault: Option<Fault>| {
                let mut data = fault::inside(None, || content(sample)).and_then(|data| data)?;
                if let Some(fault) = fault {
                    fault.spoil(&mut data);
                }
                let mut encoded = Encoded::new(data);
                encoded.pixels = size.pixels;
                Ok(encoded)
            });
            let ended = leaf(Some(cell.clone())).await;
            // A read that failed by itself never got as far as its bytes; else they, or why there are none, say more.
            match cell.result() {
                Some(result) => result,
                None => Err(ended.expect_err("a read that succeeded has bytes")),
            }
        }
    }
}
