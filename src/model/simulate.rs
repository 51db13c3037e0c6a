//! From a model's numbers to a simulation's whole ones.

use super::{
    CopiedBy, Cost, DatasetModel, KernelCost, Latency, Lock, MachineModel, Measured, PixelModel, Reader, Residual, Slowed, Store,
};
use crate::{
    sim,
    units::{ByteRate, Duration, Fraction},
};

/// A rate or a size as large as the simulator can say.
fn at_most_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl MachineModel {
    /// The machine with `pool_threads` threads and one of its stores, on which every leaf costs what the model says: everything but
    /// the samples, the faults and the seed.
    pub fn to_config(&self, pool_threads: u64, store: &Store) -> sim::Config {
        let costs = self.costs.iter().fold(sim::Costs::new(), |costs, (kind, cost)| costs.with(kind.clone(), cost.to_sim()));
        sim::Config {
            cpu: self.cpu_spec(),
            pool_threads: at_most_u32(pool_threads),
            wakeup_ns: self.cpu.wake_up.value.as_ns(),
            scheduler: sim::SchedulerSpec {
                per_wake_ns: self.scheduler.per_wake.value.as_ns(),
                per_completion_ns: self.scheduler.per_completion.value.as_ns(),
                burst: at_most_u32(self.scheduler.burst.value.0),
                queued_low: at_most_u32(self.scheduler.queued_low.value.0.saturating_mul(pool_threads)),
                age_ns: self.scheduler.age.value.as_ns(),
            },
            costs,
            lock: self.lock.as_ref().map(Lock::to_sim),
            store: store.to_sim(),
            copy: sim::CopySpec {
                by: match self.device.copied_by {
                    CopiedBy::Engines if self.device.links.is_some() => sim::CopyBy::Pcie(self.pcie_spec()),
                    CopiedBy::Engines => sim::CopyBy::Engines(self.device.engines.as_ref().map_or(1, |n| at_most_u32(n.value.0))),
                    CopiedBy::Pool => sim::CopyBy::Pool,
                    CopiedBy::Thread => sim::CopyBy::Thread,
                },
                cost: self.device.copy.to_sim(),
            },
            gpu: self.gpu_spec(),
            kernels: self.kernel_spec(),
            lends_slots: self.device.lends_slots,
            memory_bytes: self.memory.as_ref().map(|m| m.value.as_bytes()),
            ..sim::Config::default()
        }
    }

    fn gpu_spec(&self) -> sim::GpuSpec {
        let point = |point: &Slowed| sim::Slowed { busy: at_most_u32(point.busy.0), by_ppm: at_most_u32(point.by.as_ppm()) };
        sim::GpuSpec { slowed: self.device.slowed.iter().map(point).collect() }
    }

    /// The device at stages on whole batches; a stage of an unknown kind has no cost.
    pub(crate) fn kernel_spec(&self) -> sim::KernelSpec {
        sim::KernelSpec {
            at_once: self.device.kernels_at_once.as_ref().map_or(1, |n| at_most_u32(n.value.0)),
            costs: self.kernels.iter().map(|(kind, cost)| (kind.clone(), cost.to_sim())).collect(),
            other: None,
        }
    }

    fn pcie_spec(&self) -> sim::PcieSpec {
        let links = self.device.links.as_ref().expect("asked for only where there are links");
        let rate = |rate: &Measured<ByteRate>| rate.value.as_bytes_per_s().max(1);
        sim::PcieSpec {
            devices_per_uplink: at_most_u32(links.devices_per_uplink.value.0),
            engines: self.device.engines.as_ref().map_or(1, |n| at_most_u32(n.value.0)),
            uplink: sim::LaneSpec::both(rate(&links.uplink)),
            copy_bytes_per_s: links.pageable.as_ref().map(rate),
            ..sim::PcieSpec::new(at_most_u32(links.devices.value.0), sim::LaneSpec::both(rate(&links.link)))
        }
    }

    fn cpu_spec(&self) -> sim::CpuSpec {
        let cores = at_most_u32(self.cpu.threads.value.0);
        let speed_ppm = match self.cpu.speed.is_empty() && self.cpu.smt_speed.is_none() {
            true => Vec::new(),
            false => (1..=u64::from(cores)).map(|busy| (self.cpu.speed_at(busy) * 1e6).round() as u32).collect(),
        };
        sim::CpuSpec { cores, speed_ppm }
    }
}

impl Lock {
    fn to_sim(&self) -> sim::LockSpec {
        let held = |(kind, part): (&String, &Measured<Fraction>)| (kind.clone(), at_most_u32(part.value.as_ppm()));
        let interval_ns = self.interval.as_ref().map_or(u64::MAX, |interval| interval.value.as_ns());
        sim::LockSpec { interval_ns, held: self.held.iter().map(held).collect() }
    }
}

impl Cost {
    /// The cost in whole numbers.
    pub fn to_sim(&self) -> sim::Cost {
        sim::Cost {
            fixed_ns: self.fixed.as_ref().map_or(0, |m| m.value.as_ns()),
            ps_per_byte: self.per_byte.as_ref().map_or(0, |m| m.value.as_ps()),
            ps_per_pixel: self.per_pixel.as_ref().map_or(0, |m| m.value.as_ps()),
            residual_ppm: self.residual.as_ref().map_or(sim::Cost::EXACT, Residual::to_sim),
        }
    }
}

impl KernelCost {
    /// The cost in whole numbers.
    pub fn to_sim(&self) -> sim::KernelCost {
        sim::KernelCost {
            fixed_ns: self.fixed.as_ref().map_or(0, |m| m.value.as_ns()),
            fs_per_byte: self.per_byte.as_ref().map_or(0, |m| m.value.as_fs()),
        }
    }
}

impl Residual {
    fn to_sim(&self) -> sim::Distribution {
        let ppm: Vec<u64> = self.quantiles.iter().map(|q| q.as_ppm()).collect();
        sim::Distribution::Table(sim::Quantiles::new(ppm))
    }
}

impl Latency {
    /// The latency in whole nanoseconds.
    pub fn to_sim(&self) -> sim::Distribution {
        match self {
            Latency::Constant(value) => sim::Distribution::Constant(value.value.as_ns()),
            Latency::Table { points, .. } => {
                let permille = |p: f64| (p * 1000.0).round() as u32;
                let points: Vec<(u32, u64)> = points.iter().map(|p| (permille(p.at.base()), p.value.as_ns())).collect();
                sim::Distribution::Table(sim::Quantiles::from_points(&points))
            }
        }
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        Duration::of_base(self.to_sim().mean())
    }
}

impl Store {
    fn to_sim(&self) -> sim::StoreSpec {
        let requests = self.requests.as_ref().map(|rate| {
            let per_s = rate.value.per_s().round().max(1.0) as u64;
            sim::RequestRate { per_s, burst: self.burst.as_ref().map_or(per_s, |b| b.value.0) }
        });
        sim::StoreSpec {
            reader: match self.reader {
                Reader::Pool => sim::Reader::Pool,
                Reader::Own => sim::Reader::Own,
            },
            first_byte_ns: self.first_byte.as_ref().map_or(sim::Distribution::Constant(0), Latency::to_sim),
            connection_bytes_per_s: self.per_connection.as_ref().map(|r| r.value.as_bytes_per_s().max(1)),
            link_bytes_per_s: self.bandwidth.as_ref().map(|r| r.value.as_bytes_per_s().max(1)),
            connections: self.connections.as_ref().map(|n| at_most_u32(n.value.0)),
            requests,
            disk: self.disk_spec(),
            cost: self.cost.as_ref().map_or(sim::Cost::FREE, Cost::to_sim),
        }
    }
}

impl Store {
    /// What is said of a disk, if anything is.
    fn disk_spec(&self) -> Option<sim::DiskSpec> {
        let spec = sim::DiskSpec {
            block_bytes: self.block.as_ref().map_or(1, |m| m.value.as_bytes().max(1)),
            requests_per_s: self.iops.as_ref().map(|m| m.value.per_s().round().max(1.0) as u64),
            request_bytes: self.request.as_ref().map(|m| m.value.as_bytes().max(1)),
            rotation_ns: self.rotation.as_ref().map_or(0, |m| m.value.as_ns()),
            cached_ppm: self.cached.as_ref().map_or(0, |m| at_most_u32(m.value.as_ppm())),
        };
        (spec != sim::DiskSpec::default()).then_some(spec)
    }
}

impl DatasetModel {
    /// The samples in whole numbers.
    pub fn to_sim(&self) -> sim::Dataset {
        let mean_bytes = self.bytes.value.as_bytes().max(1);
        let pixels = self.pixels.value.0;
        sim::Dataset::Drawn {
            count: self.count.value.0,
            bytes: sim::Distribution::Table(sim::Quantiles::lognormal(mean_bytes, self.sigma.value.0)),
            pixels: match self.pixels_by {
                PixelModel::Bytes => sim::PixelCount::PerByte { ppm: (pixels as f64 / mean_bytes as f64 * 1e6).round() as u64 },
                PixelModel::Constant => sim::PixelCount::Drawn(sim::Distribution::Constant(pixels)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{model, sim};

    #[test]
    fn a_model_and_its_simulation_agree_on_the_mean_cost() {
        for name in model::NAMES {
            let machine = model::load(name).unwrap();
            for (kind, cost) in &machine.costs {
                let (ours, theirs) = (cost.mean_ns(114_660.0, 181_503.0), cost.to_sim().mean_ns(114_660.0, 181_503.0));
                assert!((ours - theirs).abs() <= 1e-6 * ours, "{kind} on {name}: {ours} and {theirs}");
            }
        }
    }

    #[test]
    fn a_decoded_image_of_the_reference_costs_what_was_measured() {
        let machine = model::load("reference-2core").unwrap();
        let per_s = 1e9 / machine.costs["decode"].mean_ns(97_000.0, 187_500.0);
        assert!((per_s / 790.0 - 1.0).abs() < 0.02, "{per_s} images/s, 790 were measured");
    }

    #[test]
    fn a_batch_is_normalized_as_fast_as_the_memory_of_the_gpu_allows() {
        // Three bytes to and from memory for each of a batch's, at four fifths of its peak.
        for (name, peak_bytes_per_s) in [("p4d.24xlarge", 1.555e12), ("dgx-a100", 1.555e12), ("p5.48xlarge", 3.35e12)] {
            let machine = model::load(name).unwrap();
            let spec = machine.kernel_spec();
            let cost = spec.cost("normalize").unwrap_or_else(|| panic!("{name}"));
            let (bytes, expected_ns) = (256 * 150_528, 256.0 * 150_528.0 * 3.0 / (0.8 * peak_bytes_per_s) * 1e9);
            let took_ns = (cost.ns(bytes) - cost.fixed_ns) as f64;
            assert!((took_ns / expected_ns - 1.0).abs() < 0.02, "{took_ns} ns on {name}, expected {expected_ns}");
            assert!(machine.drawn(1, 2).kernels != machine.kernels, "it is uncertain");
        }
        assert!(model::load("reference-2core").unwrap().kernel_spec().cost("normalize").is_none(), "it has no GPU");
    }

    #[test]
    fn steps_are_slowed_down_as_published() {
        // What the model of a p4d says in a comment.
        let text = include_str!("../../models/p4d.24xlarge.toml").replace("# slowed = ", "slowed = ");
        let machine = model::parse("slowed.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let config = machine.to_config(16, &machine.stores["object"]);
        let batches_per_s = |busy| 4.1e6 / (1e6 + f64::from(config.gpu.slowed_ppm(busy)));
        for (busy, published) in [(24, 4.1), (48, 4.1), (72, 3.7), (87, 3.6), (95, 2.9), (96, 2.9)] {
            let found = batches_per_s(busy);
            assert!((found - published).abs() < 0.01, "{found} batches/s with {busy} busy threads, published {published}");
        }
        assert_eq!(model::load("p4d.24xlarge").unwrap().to_config(16, &machine.stores["object"]).gpu, sim::GpuSpec::default());
    }

    #[test]
    fn threads_that_share_a_core_are_slower_where_nobody_has_measured_them() {
        let of = |cpu: &str| {
            let text = include_str!("../../models/p4d.24xlarge.toml");
            let (head, tail) = (text.find("speed = [").unwrap(), text.find("[scheduler]").unwrap());
            let machine = model::parse("smt.toml", &format!("{}{cpu}\n{}", &text[..head], &text[tail..]));
            machine
                .unwrap_or_else(|e| panic!("{e}"))
                .to_config(16, &crate::model::load("p4d.24xlarge").unwrap().stores["object"])
                .cpu
        };
        let speeds = |cpu: &str| [1, 24, 48, 72, 96].map(|busy: usize| of(cpu).speed_ppm[busy - 1]);
        let smt = "cores = 48\nsmt_speed = \"65 %\"\n";
        assert_eq!(of(smt), sim::Smt { cores: 48, sibling_ppm: 650_000 }.cpu());
        // Measured, or derived, up to a thread on every core: the clock falls, and then both threads of a core share it.
        let boost = format!("{smt}speed = [{{ busy = 1, each = \"100 %\" }}, {{ busy = 48, each = \"88 %\" }}]\n");
        assert_eq!(speeds(&boost), [1_000_000, 941_277, 880_000, 674_667, 572_000]);
        // What was measured to the end leaves nothing to say.
        let whole = "speed = [{ busy = 1, each = \"100 %\" }, { busy = 96, each = \"57 %\" }]\n";
        assert_eq!(of(&format!("{smt}{whole}")), of(whole));
        assert!(of("").speed_ppm.is_empty());
    }

    #[test]
    fn a_published_latency_goes_through_its_points() {
        let machine = model::load("p4d.24xlarge").unwrap();
        let config = machine.to_config(16, &machine.stores["object"]);
        let at = |p: f64| config.store.first_byte_ns.at((p * 2f64.powi(64)) as u64) as f64 / 1e6;
        for (p, ms) in [(0.0, 7.0), (0.25, 9.0), (0.5, 10.0), (0.75, 12.0), (0.9, 16.0), (0.99, 75.0)] {
            assert!((at(p) - ms).abs() < 0.1, "{p}: {} ms, published {ms}", at(p));
        }
        let sim::CopyBy::Pcie(pcie) = config.copy.by else { panic!("{:?}", config.copy.by) };
        assert_eq!((pcie.devices, pcie.devices_per_uplink, pcie.engines, pcie.uplink.bytes_per_s), (8, 2, 2, 12_500_000_000));
        assert_eq!((config.cpu.cores, config.cpu.speed_ppm[47], config.cpu.speed_ppm[95]), (96, 880_000, 570_000));
    }
}
