//! What a consumer looks at is what it was given.

use super::{Asked, Broken, Invariant, name, of_rank};
use crate::check::design::Got;

/// The memory of a batch holds its samples whenever the consumer looks, until it gives the batch back. It is broken by a buffer that is
/// filled again before the copy from it has ended, by a slice of one of which only a part was waited for, by a batch gathered in pieces of
/// which one lies in another's place, and by memory that a consumer still holds when the loader takes it for another batch.
///
/// It looks at the crate's own loader, whose samples are tags here, and at designs that [show](crate::check::Delivery::content) their memory.
pub struct ContentIntact<'a> {
    asked: Asked<'a>,
}

impl<'a> ContentIntact<'a> {
    /// Before a run.
    pub fn new(asked: Asked<'a>) -> ContentIntact<'a> {
        ContentIntact { asked }
    }
}

impl Invariant for ContentIntact<'_> {
    fn name(&self) -> &'static str {
        "content_intact"
    }

    fn batch(&mut self, got: &Got) -> Result<(), Broken> {
        for (look, tags) in got.content.iter().enumerate() {
            let when = ["got it", "had worked on it", "gave it back"].get(look).unwrap_or(&"held it");
            let wrong = match tags.len() == got.items.len() {
                false => Some(format!("batch {} has {} samples and {} in its memory", got.index, got.items.len(), tags.len())),
                true => got.items.iter().zip(tags).find(|(item, tag)| item.sample != **tag).map(|(item, tag)| {
                    format!("when the consumer {when}, the memory of batch {} held {tag} in place of {}", got.index, name(item))
                }),
            };
            if let Some(why) = wrong {
                let broken = Broken::new(of_rank(got.rank, self.asked.ranks.len(), why)).at(got.at);
                return Err(broken.by_batch(got.rank, got.index));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::example::{asked, got, judge, resolved},
        *,
    };
    use crate::loader::Settings;

    #[test]
    fn memory_that_changes_while_it_is_held_breaks_it() {
        let ranks = resolved(Settings::new(4, 2, 1));
        let judged = |content: &[[u64; 2]]| {
            let batch = Got { content: content.iter().map(|tags| tags.to_vec()).collect(), ..got(0, 0, &[0, 1]) };
            judge(&mut ContentIntact::new(asked(&ranks)), &[], &[batch])
        };
        assert_eq!(judged(&[[0, 1], [0, 1], [0, 1]]), Ok(()));
        let expected =
            "when the consumer had worked on it, the memory of batch 0 held 3 in place of sample 1 (epoch 0, position 1)";
        assert_eq!(judged(&[[0, 1], [0, 3]]), Err(expected.to_owned()));
    }
}
