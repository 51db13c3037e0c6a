//! What can be raised: every resource of the machine and every setting of the loader that throughput may depend on.

use crate::{
    document::Trouble,
    model::{Cost, Latency, MachineModel, Measured, Store},
    scenario::{Samples, Scenario},
    units::{Count, Dimension, Quantity},
};

/// A scenario and the machine it runs on, both free to be changed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scenario; what it says of its store is in the machine's.
    pub scenario: Scenario,
    /// The machine.
    pub machine: MachineModel,
    /// Slots in the ring, as resolved.
    pub ring: u64,
}

impl Setup {
    /// The setup of a scenario on a machine.
    ///
    /// # Errors
    ///
    /// When they do not fit together.
    pub fn of(scenario: &Scenario, machine: &MachineModel, samples: &Samples) -> Result<Setup, Trouble> {
        let (mut scenario, mut machine) = (scenario.clone(), machine.clone());
        let store = scenario.store_on(&machine)?;
        machine.stores.insert(scenario.store.kind.clone(), store);
        scenario.store = crate::scenario::Store::plain(scenario.store.kind);
        let settings = scenario.settings(scenario.threads(&machine), samples)?;
        let ring = settings.resolve().expect("`Scenario::settings` has resolved them").ring as u64;
        Ok(Setup { scenario, machine, ring })
    }

    fn store(&mut self) -> &mut Store {
        self.machine.stores.get_mut(&self.scenario.store.kind).expect("`Setup::of` has put it there")
    }
}

/// What was changed, from what to what.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The value before.
    pub from: String,
    /// The value after.
    pub to: String,
    /// By how much the resource got larger or faster, relative to before: 0.1 is 10 %.
    pub raised: f64,
}

/// Something that can be raised.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// What it is called.
    pub name: &'static str,
    /// Makes it `factor` times as large or as fast, counts at least one larger; `None` where the setup has no such limit.
    pub raise: fn(&mut Setup, f64) -> Option<Step>,
}

/// Everything that can be raised.
pub const KNOBS: &[Knob] = &[
    Knob { name: "cores and threads", raise: cores },
    Knob { name: "decode speed", raise: decode },
    Knob { name: "store bandwidth", raise: |s, f| rate(&mut s.store().bandwidth, f) },
    Knob { name: "rate per connection", raise: |s, f| rate(&mut s.store().per_connection, f) },
    Knob { name: "store connections", raise: |s, f| counted(&mut s.store().connections, f) },
    Knob { name: "store requests", raise: |s, f| rate(&mut s.store().requests, f) },
    Knob { name: "disk requests", raise: |s, f| rate(&mut s.store().iops, f) },
    Knob { name: "first-byte speed", raise: first_byte },
    Knob { name: "copy speed", raise: |s, f| Some(copies(s, f)) },
    Knob { name: "device stage speed", raise: device_stage },
    Knob { name: "batches in the device stage", raise: device_stage_limit },
    Knob { name: "less under the lock", raise: lock },
    Knob { name: "memory budget", raise: |s, f| Some(quantity(&mut s.scenario.loader.budget, f)) },
    Knob { name: "ring", raise: ring },
    Knob { name: "lanes", raise: lanes },
    Knob { name: "prefetch", raise: |s, f| Some(count(&mut s.scenario.loader.prefetch, f)) },
    Knob { name: "train step speed", raise: |s, f| Some(sooner(&mut s.scenario.consumer.step, f)) },
];

/// `n` times `factor`, and at least one more.
fn grown(n: u64, factor: f64) -> u64 {
    ((n as f64 * factor).round() as u64).max(n.saturating_add(1))
}

fn stepped(from: u64, to: u64) -> Step {
    Step { from: Count(from).to_string(), to: Count(to).to_string(), raised: to as f64 / from.max(1) as f64 - 1.0 }
}

fn count(n: &mut u64, factor: f64) -> Step {
    let from = *n;
    *n = grown(from, factor);
    stepped(from, *n)
}

fn counted(n: &mut Option<Measured<Count>>, factor: f64) -> Option<Step> {
    n.as_mut().map(|n| count(&mut n.value.0, factor))
}

fn scaled<D: Dimension>(value: &mut Quantity<D>, factor: f64) -> (String, String) {
    let base = value.base() * factor;
    // In the unit it was written in, to the digits that say how much it grew.
    let (number, unit) = value.alike(base);
    let to = format!("{} {unit}", (number * 1000.0).round() / 1000.0);
    let from = value.to_string();
    *value = Quantity::of_base(base);
    (from, to)
}

fn quantity<D: Dimension>(value: &mut Quantity<D>, factor: f64) -> Step {
    let (from, to) = scaled(value, factor);
    Step { from, to, raised: factor - 1.0 }
}

/// A time, made shorter.
fn sooner<D: Dimension>(value: &mut Quantity<D>, factor: f64) -> Step {
    let (from, to) = scaled(value, 1.0 / factor);
    Step { from, to, raised: factor - 1.0 }
}

fn rate<D: Dimension>(value: &mut Option<Measured<Quantity<D>>>, factor: f64) -> Option<Step> {
    value.as_mut().map(|m| quantity(&mut m.value, factor))
}

fn faster(cost: &mut Cost, factor: f64) -> Step {
    if let Some(m) = &mut cost.fixed {
        sooner(&mut m.value, factor);
    }
    if let Some(m) = &mut cost.per_byte {
        sooner(&mut m.value, factor);
    }
    if let Some(m) = &mut cost.per_pixel {
        sooner(&mut m.value, factor);
    }
    Step { from: "×1".to_owned(), to: format!("×{factor}"), raised: factor - 1.0 }
}

/// Faster copies: their own cost, and the links that they take.
fn copies(setup: &mut Setup, factor: f64) -> Step {
    if let Some(link) = &mut setup.scenario.consumer.link {
        return quantity(link, factor);
    }
    let device = &mut setup.machine.device;
    if let Some(links) = &mut device.links {
        let rates = [Some(&mut links.link), Some(&mut links.uplink), links.pageable.as_mut()];
        for rate in rates.into_iter().flatten() {
            quantity(&mut rate.value, factor);
        }
    }
    faster(&mut device.copy, factor)
}

/// A faster stage on the device, where there is one.
fn device_stage(setup: &mut Setup, factor: f64) -> Option<Step> {
    let cost = setup.machine.kernels.get_mut(setup.scenario.loader.device_stage?.name())?;
    if let Some(m) = &mut cost.fixed {
        sooner(&mut m.value, factor);
    }
    if let Some(m) = &mut cost.per_byte {
        sooner(&mut m.value, factor);
    }
    Some(Step { from: "×1".to_owned(), to: format!("×{factor}"), raised: factor - 1.0 })
}

/// More batches in the stage on the device at once, as many of them as the device has places for.
fn device_stage_limit(setup: &mut Setup, factor: f64) -> Option<Step> {
    setup.scenario.loader.device_stage?;
    Some(count(&mut setup.scenario.loader.device_stage_limit, factor))
}

/// More cores, and with them more threads in the pool.
fn cores(setup: &mut Setup, factor: f64) -> Option<Step> {
    let threads = setup.scenario.threads(&setup.machine);
    setup.scenario.loader.threads = Some(grown(threads, factor));
    let cpu = &mut setup.machine.cpu;
    // Where cores have two threads there are more of both, and what was measured of so many is true of as many more.
    if let Some(cores) = &mut cpu.cores {
        let threads = grown(cpu.threads.value.0, factor);
        cores.value.0 = grown(cores.value.0, factor).clamp(threads.div_ceil(2), threads);
        cpu.speed.iter_mut().filter(|point| point.busy.0 > 1).for_each(|point| point.busy.0 = grown(point.busy.0, factor));
    }
    Some(count(&mut cpu.threads.value.0, factor))
}

fn decode(setup: &mut Setup, factor: f64) -> Option<Step> {
    setup.machine.costs.get_mut("decode").map(|cost| faster(cost, factor))
}

/// A smaller part of every job under the lock.
fn lock(setup: &mut Setup, factor: f64) -> Option<Step> {
    let held = &mut setup.machine.lock.as_mut()?.held;
    held.values_mut().for_each(|part| {
        sooner(&mut part.value, factor);
    });
    Some(Step { from: "×1".to_owned(), to: format!("÷{factor}"), raised: factor - 1.0 })
}

fn first_byte(setup: &mut Setup, factor: f64) -> Option<Step> {
    match setup.store().first_byte.as_mut()? {
        Latency::Constant(m) => Some(sooner(&mut m.value, factor)),
        Latency::Table { points, .. } => {
            for point in points {
                sooner(&mut point.value, factor);
            }
            Some(Step { from: "×1".to_owned(), to: format!("×{factor}"), raised: factor - 1.0 })
        }
    }
}

fn ring(setup: &mut Setup, factor: f64) -> Option<Step> {
    let (from, to) = (setup.ring, grown(setup.ring, factor));
    (setup.ring, setup.scenario.loader.ring) = (to, Some(to));
    Some(stepped(from, to))
}

fn lanes(setup: &mut Setup, factor: f64) -> Option<Step> {
    let from = setup.scenario.loader.lanes_for(setup.scenario.threads(&setup.machine), &setup.scenario.store.kind);
    let to = grown(from, factor);
    setup.scenario.loader.lanes = Some(to);
    Some(stepped(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model, scenario};

    #[test]
    fn settings_are_raised_on_the_machine_as_it_is() {
        let staged = scenario::Overrides::set(["loader.device_stage=normalize"]);
        let scenario = scenario::load("imagenet-p4d", &staged).unwrap();
        let (mut machine, samples) = (scenario.machine_model().unwrap(), scenario.samples().unwrap().unwrap());
        let cost = model::KernelCost { fixed: Some(Measured::plain(crate::units::Duration::new(1.0, "ms"))), per_byte: None };
        machine.kernels.insert("normalize".to_owned(), cost);
        let setup = Setup::of(&scenario, &machine, &samples).unwrap();
        for name in ["batches in the device stage", "memory budget", "ring", "lanes", "prefetch"] {
            let knob = KNOBS.iter().find(|knob| knob.name == name).unwrap();
            let mut raised = setup.clone();
            let step = (knob.raise)(&mut raised, 2.0).unwrap_or_else(|| panic!("{name} can be set"));
            assert!(step.raised > 0.0 && step.from != step.to, "{name}: {step:?}");
            assert_eq!(format!("{:?}", raised.machine), format!("{:?}", setup.machine), "{name}");
            assert_ne!(format!("{:?}", raised.scenario), format!("{:?}", setup.scenario), "{name}");
        }
    }
}
