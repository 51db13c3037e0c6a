//! A machine that a model might as well mean: its numbers drawn from their uncertainties.
//!
//! Every number that has an uncertainty is multiplied by `1 + u·z`, where `u` is the uncertainty and `z` is drawn anew, with mean 0 and
//! standard deviation 1, for every number by its path. What a model says of a whole counts before what it says of its parts: a cost whose
//! mean is known to 2 % is scaled as one, however badly its terms are told apart.

use super::{Cost, Latency, MachineModel, Measured, Store};
use crate::{
    draw::{Purpose, draw},
    units::{Dimension, Fraction, Quantity},
};

impl MachineModel {
    /// The machine of draw number `number`: the same for the same seed and number. Numbers without an uncertainty, and counts, stay.
    #[must_use]
    pub fn drawn(&self, seed: u64, number: u64) -> MachineModel {
        let luck = Luck { seed, number };
        let mut machine = self.clone();
        if let Some(uncertainty) = machine.cpu.speed_uncertainty {
            let factor = luck.factor("cpu.speed", uncertainty);
            for point in machine.cpu.speed.iter_mut().filter(|point| point.busy.0 > 1) {
                point.each = scaled(point.each, factor);
            }
        }
        luck.vary_share(machine.cpu.smt_speed.as_mut(), "cpu.smt_speed");
        luck.vary(&mut machine.cpu.wake_up, "cpu.wake_up");
        if let Some(lock) = &mut machine.lock {
            for (kind, part) in &mut lock.held {
                luck.vary_share(Some(part), &format!("lock.held.{kind}"));
            }
        }
        if let Some(process) = &mut machine.process {
            luck.vary(&mut process.start, "process.start");
            luck.vary_if(&mut process.boot, "process.boot");
            luck.vary_cost(&mut process.send, "process.send");
            luck.vary_cost(&mut process.receive, "process.receive");
        }
        luck.vary(&mut machine.scheduler.per_wake, "scheduler.per_wake");
        luck.vary(&mut machine.scheduler.per_completion, "scheduler.per_completion");
        luck.vary_cost(&mut machine.device.copy, "device.copy");
        if let Some(uncertainty) = machine.device.slowed_uncertainty {
            let factor = luck.factor("device.slowed", uncertainty);
            machine.device.slowed.iter_mut().for_each(|point| point.by = scaled(point.by, factor));
        }
        if let Some(links) = &mut machine.device.links {
            luck.vary(&mut links.link, "device.links.link");
            luck.vary(&mut links.uplink, "device.links.uplink");
            luck.vary_if(&mut links.pageable, "device.links.pageable");
        }
        for (kind, cost) in &mut machine.costs {
            luck.vary_cost(cost, &format!("costs.{kind}"));
        }
        for (kind, cost) in &mut machine.kernels {
            luck.vary_if(&mut cost.fixed, &format!("kernels.{kind}.fixed"));
            luck.vary_if(&mut cost.per_byte, &format!("kernels.{kind}.per_byte"));
        }
        for (name, store) in &mut machine.stores {
            luck.vary_store(store, &format!("stores.{name}"));
        }
        machine
    }

    /// By what the time of a run is longer in draw number `number` than the simulation says, train steps left out: 1 on a machine without
    /// an uncertainty of structure.
    pub fn stretch(&self, seed: u64, number: u64) -> f64 {
        self.structure.as_ref().map_or(1.0, |structure| Luck { seed, number }.factor("structure", structure.value))
    }
}

/// One draw of everything.
#[derive(Clone, Copy)]
struct Luck {
    seed: u64,
    number: u64,
}

/// No number becomes less than this part of itself.
const LEAST: f64 = 0.05;

impl Luck {
    fn factor(self, path: &str, uncertainty: Fraction) -> f64 {
        (1.0 + uncertainty.base() * self.standard_normal(path)).max(LEAST)
    }

    /// Nearly normal: twelve uniform numbers added up, which every computer adds up to the same sum.
    fn standard_normal(self, path: &str) -> f64 {
        let halves = |word: u64| [word >> 32, word & 0xffff_ffff];
        let block = draw(self.seed, Purpose::UNCERTAINTY, hash(path), self.number);
        let sum: u64 = (0..6).flat_map(|i| halves(block.word(i))).sum();
        sum as f64 / 2f64.powi(32) - 6.0
    }

    fn vary<D: Dimension>(self, number: &mut Measured<Quantity<D>>, path: &str) {
        if let Some(uncertainty) = number.uncertainty {
            number.value = scaled(number.value, self.factor(path, uncertainty));
        }
    }

    fn vary_if<D: Dimension>(self, number: &mut Option<Measured<Quantity<D>>>, path: &str) {
        if let Some(number) = number {
            self.vary(number, path);
        }
    }

    /// A part of a whole stays one.
    fn vary_share(self, number: Option<&mut Measured<Fraction>>, path: &str) {
        if let Some(number) = number {
            self.vary(number, path);
            number.value = Fraction::of_base(number.value.base().min(1.0));
        }
    }

    fn vary_cost(self, cost: &mut Cost, path: &str) {
        let Some(uncertainty) = cost.uncertainty else {
            self.vary_if(&mut cost.fixed, &format!("{path}.fixed"));
            self.vary_if(&mut cost.per_byte, &format!("{path}.per_byte"));
            self.vary_if(&mut cost.per_pixel, &format!("{path}.per_pixel"));
            return;
        };
        let factor = self.factor(path, uncertainty);
        scale_if(&mut cost.fixed, factor);
        scale_if(&mut cost.per_byte, factor);
        scale_if(&mut cost.per_pixel, factor);
    }

    fn vary_store(self, store: &mut Store, path: &str) {
        match &mut store.first_byte {
            Some(Latency::Constant(value)) => self.vary(value, &format!("{path}.first_byte")),
            Some(Latency::Table { points, uncertainty: Some(uncertainty), .. }) => {
                let factor = self.factor(&format!("{path}.first_byte"), *uncertainty);
                points.iter_mut().for_each(|point| point.value = scaled(point.value, factor));
            }
            Some(Latency::Table { uncertainty: None, .. }) | None => {}
        }
        self.vary_if(&mut store.per_connection, &format!("{path}.per_connection"));
        self.vary_if(&mut store.bandwidth, &format!("{path}.bandwidth"));
        self.vary_if(&mut store.requests, &format!("{path}.requests"));
        self.vary_if(&mut store.iops, &format!("{path}.iops"));
        self.vary_if(&mut store.rotation, &format!("{path}.rotation"));
        if let Some(cost) = &mut store.cost {
            self.vary_cost(cost, &format!("{path}.cost"));
        }
    }
}

fn scaled<D: Dimension>(value: Quantity<D>, factor: f64) -> Quantity<D> {
    Quantity::of_base(value.base() * factor)
}

fn scale_if<D: Dimension>(number: &mut Option<Measured<Quantity<D>>>, factor: f64) {
    if let Some(number) = number {
        number.value = scaled(number.value, factor);
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    fn values(of: impl Fn(&MachineModel) -> f64) -> Vec<f64> {
        let machine = model::load("p4d.24xlarge").unwrap();
        (0..2_000).map(|number| of(&machine.drawn(7, number)) / of(&machine)).collect()
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt())
    }

    #[test]
    fn a_number_spreads_as_its_uncertainty_says() {
        // 20 % for the whole cost of decoding, whatever its terms say, and 15 % for the disks.
        let decode = values(|m| m.costs["decode"].mean_ns(1e5, 2e5));
        let (mean, deviation) = mean_and_deviation(&decode);
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 0.2).abs() < 0.01, "{mean} ± {deviation}");
        let disk = values(|m| m.stores["disk"].bandwidth.as_ref().unwrap().value.base());
        let (mean, deviation) = mean_and_deviation(&disk);
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 0.15).abs() < 0.01, "{mean} ± {deviation}");
        let both: f64 = decode.iter().zip(&disk).map(|(a, b)| (a - 1.0) * (b - 1.0)).sum::<f64>() / 2_000.0 / (0.2 * 0.15);
        assert!(both.abs() < 0.1, "what is uncertain for reasons of its own does not go together: {both}");
    }

    #[test]
    fn slowed_steps_shared_cores_and_a_lock_are_as_uncertain_as_they_say() {
        let text = include_str!("../../models/reference-2core.toml")
            .replace("pool_threads = 2", "cores = 1\nsmt_speed = { value = \"95 %\", uncertainty = \"10 %\" }")
            .replace(
                "lends_slots = true",
                "lends_slots = true\nslowed = [{ busy = 2, by = \"8 %\" }]\nslowed_uncertainty = \"20 %\"",
            );
        let lock = "[lock.held]\ndecode = { value = \"50 %\", uncertainty = \"20 %\" }\n";
        let machine = model::parse("uncertain.toml", &format!("{text}\n{lock}")).unwrap_or_else(|e| panic!("{e}"));
        let values = |of: &dyn Fn(&MachineModel) -> f64| (0..2_000).map(|n| of(&machine.drawn(7, n))).collect::<Vec<_>>();
        let (mean, deviation) = mean_and_deviation(&values(&|m| m.device.slowed[0].by.base()));
        assert!((mean - 0.08).abs() < 0.001 && (deviation - 0.016).abs() < 0.001, "{mean} ± {deviation}");
        let (mean, deviation) = mean_and_deviation(&values(&|m| m.lock.as_ref().unwrap().held["decode"].value.base()));
        assert!((mean - 0.5).abs() < 0.01 && (deviation - 0.1).abs() < 0.005, "{mean} ± {deviation}");
        let speeds = values(&|m| m.cpu.smt_speed.as_ref().unwrap().value.base());
        assert!(speeds.iter().all(|speed| (0.5..=1.0).contains(speed)) && speeds.iter().any(|speed| *speed < 0.9));
    }

    #[test]
    fn what_has_no_uncertainty_stays_and_a_draw_can_be_repeated() {
        let machine = model::load("p4d.24xlarge").unwrap();
        let drawn = machine.drawn(1, 3);
        assert_eq!(drawn, machine.drawn(1, 3));
        assert_ne!(drawn, machine.drawn(1, 4));
        assert_eq!(drawn.cpu.threads, machine.cpu.threads);
        assert_eq!(drawn.costs["decode"].residual, machine.costs["decode"].residual);
        let sure = MachineModel { costs: [("decode".to_owned(), Cost::FREE)].into(), ..machine };
        assert_eq!(sure.drawn(1, 3).costs["decode"], Cost::FREE);
    }
}
