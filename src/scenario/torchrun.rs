//! One rank of a job of several processes, as `torchrun` and other launchers of distributed training tell it: in the environment.

use super::{Overrides, Scenario};
use crate::document::{Diagnostic, Place, Source, Trouble};

/// What the environment says of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torchrun {
    /// `RANK`: this process among all of the job, from 0.
    pub rank: u16,
    /// `WORLD_SIZE`: processes of the job, two at least.
    pub world: u16,
    /// `LOCAL_RANK`: this process among those of its node, from 0; `None` when not told.
    pub local_rank: Option<u16>,
    /// `MASTER_ADDR` and `MASTER_PORT`: where the process of rank 0 can be reached; `None` when not told. Under `torchrun`, whose agent
    /// listens at that port, it is the next one.
    pub master: Option<(String, u16)>,
}

impl Torchrun {
    /// Reads it; `variable` looks one up. `None` when there is no `RANK` or no `WORLD_SIZE`, and when the world is this process alone.
    ///
    /// # Errors
    ///
    /// When a variable is no number, or a rank is not below its world.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Torchrun>, Trouble> {
        let number = |name: &str, least: u64, most: u64, expected: &str| {
            let Some(text) = variable(name) else { return Ok(None) };
            match text.trim().parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Some(number as u16)),
                _ => {
                    let wrong = Diagnostic::new(format!("`{name}` in the environment makes no sense"));
                    let hint = format!("a launcher such as torchrun sets it; without one, `unset {name}`");
                    Err(Trouble::from(wrong.at(Some(&place(name, &text))).expected(expected).hint(hint)))
                }
            }
        };
        let (Some(_), Some(_)) = (variable("RANK"), variable("WORLD_SIZE")) else { return Ok(None) };
        let most = u64::from(u16::MAX);
        let world = number("WORLD_SIZE", 1, most, "a whole number from 1 to 65535: the processes of the job")?.unwrap_or(1);
        let last = u64::from(world) - 1;
        let below = |of: &str, last: u64| format!("a whole number from 0 to {last}, below {of}");
        let rank = number("RANK", 0, last, &below(&format!("`WORLD_SIZE={world}`"), last))?.unwrap_or(0);
        let local = number("LOCAL_WORLD_SIZE", 1, u64::from(world), "a whole number from 1 to `WORLD_SIZE`")?;
        let local_rank = match local {
            Some(local) => number(
                "LOCAL_RANK",
                0,
                u64::from(local) - 1,
                &below(&format!("`LOCAL_WORLD_SIZE={local}`"), u64::from(local) - 1),
            ),
            None => number("LOCAL_RANK", 0, last, &below(&format!("`WORLD_SIZE={world}`"), last)),
        }?;
        let port = number("MASTER_PORT", 1, most, "a port, from 1 to 65535")?;
        // Where torchrun's agent keeps the job's store at that port itself, the next one is this program's.
        let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|word| word == "True");
        let port = port.and_then(|port| port.checked_add(u16::from(taken)));
        let master = variable("MASTER_ADDR").filter(|address| !address.is_empty()).zip(port);
        Ok((world > 1).then_some(Torchrun { rank, world, local_rank, master }))
    }

    /// The scenario's fields that say the same.
    ///
    /// # Errors
    ///
    /// When the scenario, or what is set over it, says something else.
    pub fn overrides(&self, scenario: &Scenario) -> Result<Overrides, Trouble> {
        let Torchrun { rank, world, .. } = *self;
        let contradicts = |field: &str, value: u16, variable: &str, own: u16| {
            let wrong = format!("`{field} = {value}` contradicts `{variable}={own}` in the environment");
            let hint = format!("leave `{field}` out, or `unset RANK WORLD_SIZE` to run this process by itself");
            Err(Diagnostic::new(wrong).at(scenario.places.of(field)).hint(hint).into())
        };
        if scenario.ranks.count > 1 {
            let count = scenario.ranks.count;
            let wrong = format!(
                "`ranks.count = {count}` contradicts `WORLD_SIZE={world}` in the environment, by which each of {world} processes is one rank"
            );
            let hint = "`--ranks 1` runs one in each process; `unset RANK WORLD_SIZE` runs them all in this one";
            return Err(Diagnostic::new(wrong).at(scenario.places.of("ranks.count")).hint(hint).into());
        }
        let loader = &scenario.loader;
        if scenario.places.of("loader.world").is_some() && loader.world != world {
            return contradicts("loader.world", loader.world, "WORLD_SIZE", world);
        }
        if scenario.places.of("loader.rank").is_some() && loader.rank != rank {
            return contradicts("loader.rank", loader.rank, "RANK", rank);
        }
        Ok(Overrides::set([format!("loader.rank={rank}"), format!("loader.world={world}")]))
    }
}

/// Where a variable's value stands.
fn place(name: &str, text: &str) -> Place {
    let line = format!("{name}={text}");
    let span = name.len() + 1..line.len().max(name.len() + 2);
    Place::new(&Source::flag("the environment", line), span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Torchrun>, String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Torchrun::read(variable).map_err(|trouble| trouble.to_string())
    }

    fn rank(rank: u16, world: u16) -> Torchrun {
        Torchrun { rank, world, local_rank: None, master: None }
    }

    #[test]
    fn a_process_of_several_knows_its_rank() {
        let all = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node-0"),
            ("MASTER_PORT", "29500"),
        ];
        let master = Some(("node-0".to_owned(), 29500));
        assert_eq!(read(&all), Ok(Some(Torchrun { local_rank: Some(1), master, ..rank(5, 8) })));
        assert_eq!(read(&all[..2]), Ok(Some(rank(5, 8))));
        let agent = [&all[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(read(&agent).unwrap().unwrap().master, Some(("node-0".to_owned(), 29501)), "the agent has the port");
        assert_eq!(read(&all[1..]), Ok(None), "a world alone says nothing");
        assert_eq!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None), "it is alone");
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_quoted() {
        insta::assert_snapshot!(read(&[("RANK", "8"), ("WORLD_SIZE", "8")]).unwrap_err(), @"
        error: `RANK` in the environment makes no sense
         --> the environment
          |
          | RANK=8
          |      ^ expected a whole number from 0 to 7, below `WORLD_SIZE=8`
        hint: a launcher such as torchrun sets it; without one, `unset RANK`
        ");
        for (name, value) in
            [("RANK", "first"), ("WORLD_SIZE", "0"), ("WORLD_SIZE", ""), ("LOCAL_RANK", "-1"), ("MASTER_PORT", "http")]
        {
            let mut all = vec![(name, value), ("RANK", "0"), ("WORLD_SIZE", "2")];
            all.dedup_by_key(|(name, _)| *name);
            let wrong = read(&all).unwrap_err();
            assert!(wrong.contains(&format!("`{name}` in the environment makes no sense")), "{wrong}");
        }
    }

    #[test]
    fn a_scenario_that_says_something_else_is_refused_and_both_are_named() {
        let scenario = |sets: &[&str]| load("quickstart", &Overrides::set(sets.iter().copied())).unwrap();
        let taken = rank(1, 2).overrides(&scenario(&[])).unwrap();
        let set = load("quickstart", &taken).unwrap();
        assert_eq!((set.loader.rank, set.loader.world), (1, 2));
        assert_eq!(rank(1, 2).overrides(&set), Ok(taken), "it may say the same");
        let wrong = |sets: &[&str]| rank(1, 2).overrides(&scenario(sets)).unwrap_err().to_string();
        let ranks = wrong(&["ranks.count=4"]);
        assert!(ranks.contains("`ranks.count = 4` contradicts `WORLD_SIZE=2`"), "{ranks}");
        let other = wrong(&["loader.world=2", "loader.rank=0"]);
        assert!(other.contains("`loader.rank = 0` contradicts `RANK=1`"), "{other}");
        let more = wrong(&["loader.world=3"]);
        assert!(more.contains("`loader.world = 3` contradicts `WORLD_SIZE=2`"), "{more}");
    }
}
