//! One rank of a job of several processes, as `torchrun` and other launchers of distributed training tell it: in the environment.

use super::{Fingerprint, Overrides, Samples, Scenario};
use crate::{
    document::{Diagnostic, Place, Source, Trouble},
    measure::processes::Setting,
};

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
    /// `TORCHELASTIC_RUN_ID`: what the launcher calls the job; `None` when it does not.
    pub job: Option<String>,
}

/// Where a word of the environment that makes no sense comes from.
const SETS: &str = "a launcher such as torchrun sets it";

impl Torchrun {
    /// Reads it; `variable` looks one up. `None` when none of `RANK`, `WORLD_SIZE` and `LOCAL_RANK` is set, and when the world is this
    /// process alone.
    ///
    /// # Errors
    ///
    /// When a variable is no number, a rank is not below its world, or only some are set of those that belong together.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Torchrun>, Trouble> {
        let number = |name: &str, least: u64, most: u64, expected: &str| {
            let Some(text) = variable(name) else { return Ok(None) };
            match text.trim().parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Some(number as u16)),
                _ => {
                    let wrong = Diagnostic::new(format!("`{name}` in the environment makes no sense"));
                    let hint = format!("{SETS}; without one, `unset {name}`");
                    Err(Trouble::from(wrong.at(Some(&place(name, &text))).expected(expected).hint(hint)))
                }
            }
        };
        let lacks = |name: &str, other: &str, hint: String| {
            let text = variable(name).unwrap_or_default();
            let wrong =
                Diagnostic::new(format!("`{name}` is in the environment, and `{other}` is not")).at(Some(&place(name, &text)));
            Err(Trouble::from(wrong.expected(format!("`{other}` beside it")).hint(hint)))
        };
        let is_set = |name: &str| variable(name).is_some();
        match (is_set("RANK"), is_set("WORLD_SIZE")) {
            (true, true) => {}
            (true, false) => return lacks("RANK", "WORLD_SIZE", format!("{SETS}; without one, `unset RANK`")),
            // The world of one process needs no rank.
            (false, true) if variable("WORLD_SIZE").is_some_and(|world| world.trim() != "1") => {
                return lacks("WORLD_SIZE", "RANK", format!("{SETS}; without one, `unset WORLD_SIZE`"));
            }
            (false, false) if is_set("LOCAL_RANK") => {
                return lacks("LOCAL_RANK", "RANK", format!("{SETS}; without one, `unset LOCAL_RANK`"));
            }
            (false, _) => return Ok(None),
        }
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
        // Where torchrun's agent keeps the job's store at that port itself, the next one is this program's.
        let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|word| word == "True");
        let (most, ports) = match taken {
            true => (most - 1, "a port from 1 to 65534, since torchrun's agent has it, and the next one is this program's"),
            false => (most, "a port, from 1 to 65535"),
        };
        let port = number("MASTER_PORT", 1, most, ports)?.map(|port| port + u16::from(taken));
        let address = variable("MASTER_ADDR").filter(|address| !address.is_empty());
        let both = "together they say where ranks meet; without both each steps by itself";
        let master = match (world > 1, address, port) {
            (true, Some(_), None) => return lacks("MASTER_ADDR", "MASTER_PORT", both.to_owned()),
            (true, None, Some(_)) => return lacks("MASTER_PORT", "MASTER_ADDR", both.to_owned()),
            (_, address, port) => address.zip(port),
        };
        let job = variable("TORCHELASTIC_RUN_ID").filter(|id| !id.is_empty() && id != "none");
        Ok((world > 1).then_some(Torchrun { rank, world, local_rank, master, job }))
    }

    /// What all processes of the job must have in common, for [`processes::meet`](crate::measure::processes::meet): the job, and what
    /// decides which samples a rank loads and how many steps it does.
    pub fn settings(&self, scenario: &Scenario, samples: &Samples) -> Vec<Setting> {
        let (loader, images) = (&scenario.loader, Fingerprint::of(samples));
        let job = self.job.iter().map(|job| ("TORCHELASTIC_RUN_ID", job.clone()));
        let all = [
            ("WORLD_SIZE", self.world.to_string()),
            ("seed", scenario.seed.to_string()),
            ("dataset.count", images.count.to_string()),
            ("dataset: bytes of the largest image", images.bytes_most.to_string()),
            ("loader.batch", loader.batch.to_string()),
            ("loader.size", loader.size.to_string()),
            ("loader.epochs", loader.epochs.to_string()),
            ("loader.shuffle", loader.shuffle.to_string()),
            ("loader.drop_last", loader.drop_last.to_string()),
            ("loader.tail", loader.tail.to_string()),
        ];
        // One line each.
        job.chain(all).map(|(name, value)| (name.to_owned(), value.escape_debug().to_string())).collect()
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
        Torchrun { rank, world, local_rank: None, master: None, job: None }
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
        let named = read(&[&all[..], &[("TORCHELASTIC_RUN_ID", "nightly")]].concat()).unwrap().unwrap();
        assert_eq!(named.job.as_deref(), Some("nightly"));
        let unnamed = read(&[&all[..], &[("TORCHELASTIC_RUN_ID", "none")]].concat()).unwrap().unwrap();
        assert_eq!(unnamed.job, None, "what torchrun calls a job without a name");
        assert_eq!(read(&[("WORLD_SIZE", "1")]), Ok(None), "it is alone");
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
    fn variables_that_belong_together_are_set_together() {
        insta::assert_snapshot!(read(&[("RANK", "1")]).unwrap_err(), @"
        error: `RANK` is in the environment, and `WORLD_SIZE` is not
         --> the environment
          |
          | RANK=1
          |      ^ expected `WORLD_SIZE` beside it
        hint: a launcher such as torchrun sets it; without one, `unset RANK`
        ");
        let two = [("RANK", "0"), ("WORLD_SIZE", "2")];
        for (more, name, lacks) in [
            (&[("WORLD_SIZE", "2")][..], "WORLD_SIZE", "RANK"),
            (&[("LOCAL_RANK", "0")], "LOCAL_RANK", "RANK"),
            (&[two[0], two[1], ("MASTER_ADDR", "node-0")], "MASTER_ADDR", "MASTER_PORT"),
            (&[two[0], two[1], ("MASTER_PORT", "29500")], "MASTER_PORT", "MASTER_ADDR"),
        ] {
            let wrong = read(more).unwrap_err();
            assert!(wrong.contains(&format!("`{name}` is in the environment, and `{lacks}` is not")), "{wrong}");
        }
    }

    #[test]
    fn the_port_after_the_agents_must_be_one() {
        let last = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "node-0"), ("MASTER_PORT", "65535")];
        assert_eq!(read(&last).unwrap().unwrap().master, Some(("node-0".to_owned(), 65535)));
        let wrong = read(&[&last[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat()).unwrap_err();
        assert!(wrong.contains("MASTER_PORT=65535") && wrong.contains("expected a port from 1 to 65534"), "{wrong}");
    }

    #[test]
    fn processes_of_one_job_have_in_common_what_decides_their_plans() {
        let samples = Samples::listed(vec![crate::sim::Size { bytes: 7, pixels: 0 }; 3]);
        let of = |sets: &[&str]| {
            let scenario = load("quickstart", &Overrides::set(sets.iter().copied())).unwrap();
            rank(1, 2).settings(&scenario, &samples)
        };
        let ours = of(&[]);
        assert_eq!(ours, of(&["consumer.step=7 ms", "loader.threads=3", "consumer.leave_after=1"]), "each may have its own");
        for set in ["seed=9", "loader.batch=16", "loader.size=32", "loader.epochs=7", "loader.shuffle=false", "loader.tail=pad"] {
            let (name, _) = set.split_once('=').unwrap();
            let theirs = of(&[set]);
            let differ: Vec<&str> =
                ours.iter().zip(&theirs).filter(|(a, b)| a != b).map(|((name, _), _)| name.as_str()).collect();
            assert_eq!(differ, [name]);
        }
        assert!(ours.contains(&("dataset.count".to_owned(), "3".to_owned())), "{ours:?}");
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
