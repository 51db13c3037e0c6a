//! A machine as numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Cost, KernelCost, Lock, Measured, Process, Store, store::above_zero};
use crate::{
    document::{Diagnostic, FromNode, FromSection, Positive, Section, Share, documented, keyword},
    sim::Smt,
    units::{ByteRate, Count, Duration, Fraction, Size},
};

documented! {
    /// A machine as numbers. See the [module documentation](super).
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct MachineModel {
        /// What it is, in a few words.
        pub title: String,
        /// The host's memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory: Option<Measured<Size>>,
        /// How far the time of a run is off where all costs are known, train steps left out: one standard deviation, relative. Intervals
        /// are wider by it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub structure: Option<Measured<Fraction>>,
        /// The cores.
        pub cpu: Cpu,
        /// A lock that jobs hold for a part of their time; `None` where there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub lock: Option<Lock>,
        /// Worker processes, for designs that have them; [the usual ones](super::Process::default) when left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub process: Option<Process>,
        /// What control itself costs.
        pub scheduler: Scheduler,
        /// The device.
        pub device: Device,
        /// What CPU jobs cost, by kind: the image loader's is `decode`.
        pub costs: BTreeMap<String, Cost>,
        /// What stages of whole batches cost on the device, by kind, from the bytes of the batch; the scenarios' is `normalize`. They take
        /// none of the processor's time, and train steps do not feel them.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub kernels: BTreeMap<String, KernelCost>,
        /// The stores, by name; scenarios ask for `page-cache`, `disk` and `object`.
        pub stores: BTreeMap<String, Store>,
    }
}

documented! {
    /// The cores.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Cpu {
        /// Hardware threads.
        pub threads: Measured<Count>,
        /// Cores, of one or two hardware threads each.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cores: Option<Measured<Count>>,
        /// Speed of each of a core's two hardware threads while both are busy, relative to one that has its core to itself: 65 % where the
        /// second adds 30 %.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub smt_speed: Option<Measured<Fraction>>,
        /// Threads of the pool when a scenario does not say; as many as hardware threads when left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pool_threads: Option<Measured<Count>>,
        /// From the moment a sleeping thread has work until it wants a core.
        pub wake_up: Measured<Duration>,
        /// Speed of each busy hardware thread by how many are busy, with straight lines between. Beyond its last point, and where it is
        /// empty, `cores` and `smt_speed` say how fast they are, if they are there; else the last speed holds, or full speed.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub speed: Vec<Speed>,
        /// Where the speeds come from.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub speed_source: Option<String>,
        /// How far they may be off.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub speed_uncertainty: Option<Fraction>,
        /// CPU time of the [probe](super::calibrate::speed_now) when the costs were measured.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub probe: Option<Measured<Duration>>,
    }
}

documented! {
    /// Speed of each busy hardware thread when so many are busy.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
    pub struct Speed {
        /// Busy hardware threads.
        pub busy: Count,
        /// Speed of each of them, relative to one that is busy alone.
        pub each: Fraction,
    }
}

documented! {
    /// What the scheduler's thread costs.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Scheduler {
        /// CPU time of going to sleep and waking up.
        pub per_wake: Measured<Duration>,
        /// CPU time of handling one completion.
        pub per_completion: Measured<Duration>,
        /// Waiting completions that wake it at once.
        pub burst: Measured<Count>,
        /// Queued jobs per pool thread below which every completion wakes it at once.
        pub queued_low: Measured<Count>,
        /// The longest that a completion waits before it wakes the scheduler.
        pub age: Measured<Duration>,
    }
}

keyword! {
    /// What kind of device there is.
    pub enum DeviceKind {
        /// The host itself: the consumer computes on the processor.
        Host = "host",
        /// A GPU.
        Cuda = "cuda",
    }
}

keyword! {
    /// Who copies a batch to the device.
    pub enum CopiedBy {
        /// Copy engines of the device, without the processor.
        Engines = "engines",
        /// A job on a thread of the pool.
        Pool = "pool",
        /// A thread of its own for each copy.
        Thread = "thread",
    }
}

documented! {
    /// The device.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Device {
        /// What kind.
        pub kind: DeviceKind,
        /// Who copies.
        pub copied_by: CopiedBy,
        /// Number of copy engines for one direction.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub engines: Option<Measured<Count>>,
        /// Links between the host and its devices; without them every copy has the way for itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub links: Option<Links>,
        /// Whether the consumer reads slots where they are, so that a contiguous batch needs no copy.
        pub lends_slots: bool,
        /// Cost of a copy of a batch.
        pub copy: Cost,
        /// Kernels of stages on whole batches that a device does at a time; 1 when left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub kernels_at_once: Option<Measured<Count>>,
        /// By how much train steps take longer while hardware threads of the host are busy, with straight lines between; the first begins
        /// at an idle host that slows nothing down. Never, when empty.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub slowed: Vec<Slowed>,
        /// Where that comes from.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub slowed_source: Option<String>,
        /// How far it may be off.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub slowed_uncertainty: Option<Fraction>,
    }
}

documented! {
    /// By how much a train step takes longer while so many hardware threads of the host are busy.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
    pub struct Slowed {
        /// Busy hardware threads.
        pub busy: Count,
        /// By how much, relative to a step beside an idle host.
        pub by: Fraction,
    }
}

documented! {
    /// Links between the host and its devices. Each device has its own, and some in a row share an uplink. A copy waits for an engine of its
    /// device, takes the fixed part of its cost, and then its bytes flow.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct Links {
        /// Devices.
        pub devices: Measured<Count>,
        /// Devices in a row that share an uplink.
        pub devices_per_uplink: Measured<Count>,
        /// A device's link, towards the device.
        pub link: Measured<ByteRate>,
        /// An uplink, towards the devices.
        pub uplink: Measured<ByteRate>,
        /// The most that one copy gets, where the host's memory is not page-locked.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub pageable: Option<Measured<ByteRate>>,
    }
}

impl MachineModel {
    /// Threads of the pool when nobody says otherwise.
    pub fn pool_threads(&self) -> u64 {
        self.cpu.pool_threads.as_ref().unwrap_or(&self.cpu.threads).value.0
    }

    pub(super) fn read(section: Section<'_>) -> Option<MachineModel> {
        section.documents(MachineModel::DOCS);
        let title = section.required("title", "\"what machine this is\"");
        let memory = section.plain("memory");
        let structure = section.plain::<Measured<Share>>("structure");
        let cpu = Cpu::read(section.section("cpu"));
        let scheduler = Scheduler::read(section.section("scheduler"));
        let device = section.required("device", "{ kind = \"host\", copied_by = \"pool\", lends_slots = true, copy = { … } }");
        let costs = entries::<Cost>(section.section("costs"));
        let kernels = entries::<KernelCost>(section.section("kernels"));
        let stores = entries::<Store>(section.section("stores"));
        let lock = section.field::<Lock>("lock");
        let process = section.plain("process");
        if let Some(lock) = &lock {
            lock.value.check(lock, &costs, section.errors);
        }
        section.finish();
        Some(MachineModel {
            title: title?,
            lock: lock.map(|lock| lock.value),
            process,
            memory: above_zero(memory),
            structure: structure.map(|s| Measured { value: s.value.0, source: s.source, uncertainty: s.uncertainty }),
            cpu: cpu?,
            scheduler: scheduler?,
            device: device?,
            costs,
            kernels,
            stores,
        })
    }
}

/// All entries of a table whose keys are free.
fn entries<T: FromNode>(section: Section<'_>) -> BTreeMap<String, T> {
    let names = section.names();
    names.into_iter().filter_map(|name| Some((name.to_owned(), section.field::<T>(name)?.value))).collect()
}

impl Cpu {
    fn read(section: Section<'_>) -> Option<Cpu> {
        section.documents(Cpu::DOCS);
        let threads = section.required("threads", "2");
        let wake_up = section.required("wake_up", "\"10 µs\"");
        let cores = section.field::<Measured<Positive<Count>>>("cores");
        let smt_speed = section.field::<Measured<Positive<Fraction>>>("smt_speed");
        let pool_threads = section.plain("pool_threads");
        let speed = section.field::<Vec<Speed>>("speed");
        let speed_source = section.plain("speed_source");
        let speed_uncertainty = section.plain::<Share>("speed_uncertainty").map(|s| s.0);
        let probe = section.plain("probe");
        if let Some(speed) = speed.as_ref().filter(|s| !s.windows(2).all(|w| w[0].busy < w[1].busy)) {
            section.errors.push(speed.wrong("does not rise in `busy`"));
        }
        let threads: Option<Measured<Count>> = above_zero(threads);
        if let (Some(cores), Some(threads)) = (&cores, &threads) {
            let (number, threads) = (cores.value.value.0.0, threads.value.0);
            if threads < number || threads.div_ceil(2) > number {
                let wrong = cores.wrong(format!("is {} for {} hardware threads", Count(number), Count(threads)));
                section.errors.push(wrong.expected("as many as `cpu.threads`, or half as many"));
            }
        }
        match (&cores, &smt_speed) {
            (Some(cores), None) => {
                let wrong = cores.wrong("says nothing without `cpu.smt_speed`");
                section
                    .errors
                    .push(wrong.hint("write `smt_speed = \"65 %\"`, the speed of each of a core's threads while both are busy"));
            }
            (None, Some(speed)) => {
                let wrong = speed.wrong("says nothing without `cpu.cores`");
                section.errors.push(wrong.hint("write `cores = 48`, half as many as `cpu.threads`"));
            }
            _ => {}
        }
        if let Some(speed) = smt_speed.as_ref().filter(|s| s.value.value.0.base() > 1.0) {
            let wrong = speed.wrong("is more than that of a thread that has its core to itself");
            section.errors.push(wrong.expected("at most 100 %"));
        }
        section.finish();
        Some(Cpu {
            threads: threads?,
            cores: above_zero(cores.map(|c| c.value)),
            smt_speed: above_zero(smt_speed.map(|s| s.value)),
            pool_threads: above_zero(pool_threads),
            wake_up: wake_up?,
            speed: speed.map(|s| s.value).unwrap_or_default(),
            speed_source,
            speed_uncertainty,
            probe: above_zero(probe),
        })
    }

    /// The same cores at `factor` times their speed, however many are busy.
    #[must_use]
    pub fn at_speed(&self, factor: f64) -> Cpu {
        let mut cpu = self.clone();
        if cpu.speed.is_empty() {
            cpu.speed.push(Speed { busy: Count(1), each: Fraction::of_base(1.0) });
        }
        for point in &mut cpu.speed {
            point.each = Fraction::new(point.each.base() * factor * 100.0, "%");
        }
        cpu
    }

    /// Speed of each busy thread when `busy` are, relative to one that is busy alone.
    pub fn speed_at(&self, busy: u64) -> f64 {
        let after = self.speed.partition_point(|s| s.busy.0 < busy);
        let point = |s: &Speed| (s.busy.0 as f64, s.each.base());
        if after == self.speed.len()
            && let Some(smt) = self.smt()
        {
            let (measured, speed) = self.speed.last().map_or((1, 1.0), |s| (s.busy.0, s.each.base()));
            return smt.carried_on(speed, measured, busy);
        }
        match (after.checked_sub(1).map(|i| point(&self.speed[i])), self.speed.get(after).map(point)) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (busy as f64 - x0) / (x1 - x0),
            (Some((_, y)), None) | (None, Some((_, y))) => y,
            (None, None) => 1.0,
        }
    }
}

impl Cpu {
    /// What two threads of a core do to each other, where the model says so.
    fn smt(&self) -> Option<Smt> {
        let at_most_u32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (cores, speed) = (self.cores.as_ref()?, self.smt_speed.as_ref()?);
        Some(Smt { cores: at_most_u32(cores.value.0), sibling_ppm: at_most_u32(speed.value.as_ppm()) })
    }
}

impl Scheduler {
    fn read(section: Section<'_>) -> Option<Scheduler> {
        section.documents(Scheduler::DOCS);
        let per_wake = section.required("per_wake", "\"5 µs\"");
        let per_completion = section.required("per_completion", "\"1 µs\"");
        let burst = section.plain("burst");
        let queued_low = section.plain("queued_low");
        let age = section.plain("age");
        section.finish();
        Some(Scheduler {
            per_wake: per_wake?,
            per_completion: per_completion?,
            burst: burst.unwrap_or(Measured::plain(Count(16))),
            queued_low: queued_low.unwrap_or(Measured::plain(Count(2))),
            age: age.unwrap_or(Measured::plain(Duration::new(1.0, "ms"))),
        })
    }
}

impl FromSection for Speed {
    const EXPECTED: &'static str = r#"a point such as { busy = 48, each = "92 %" }"#;

    fn read(section: &Section<'_>) -> Option<Speed> {
        section.documents(Speed::DOCS);
        let busy = section.required::<Positive<Count>>("busy", "48");
        let each = section.required::<Positive<Fraction>>("each", "\"92 %\"");
        Some(Speed { busy: busy?.0, each: each?.0 })
    }
}

impl FromSection for Slowed {
    const EXPECTED: &'static str = r#"a point such as { busy = 48, by = "8 %" }"#;

    fn read(section: &Section<'_>) -> Option<Slowed> {
        section.documents(Slowed::DOCS);
        let busy = section.required::<Positive<Count>>("busy", "48");
        let by = section.required::<Fraction>("by", "\"8 %\"");
        Some(Slowed { busy: busy?.0, by: by? })
    }
}

impl FromSection for Links {
    const EXPECTED: &'static str = r#"links: { devices = 8, devices_per_uplink = 2, link = "12 GB/s", uplink = "12.5 GB/s" }"#;

    fn read(section: &Section<'_>) -> Option<Links> {
        section.documents(Links::DOCS);
        let devices = section.required("devices", "8");
        let devices_per_uplink = section.required("devices_per_uplink", "2");
        let link = section.required("link", "\"12 GB/s\"");
        let uplink = section.required("uplink", "\"12.5 GB/s\"");
        let pageable = section.plain("pageable");
        let (devices, devices_per_uplink): (Measured<Count>, Measured<Count>) =
            (above_zero(Some(devices?))?, above_zero(Some(devices_per_uplink?))?);
        // As many as there can be ranks.
        if devices.value.0 > u64::from(u16::MAX) {
            let wrong = format!("`{}` is {}, too many", section.path_of("devices"), devices.value);
            let wrong = Diagnostic::new(wrong).at(section.place());
            section.errors.push(wrong.expected(format!("at most {}", Count(u64::from(u16::MAX)))));
        }
        if devices_per_uplink.value > devices.value {
            let (path, both) = (section.path(), (devices.value, devices_per_uplink.value));
            let wrong = format!("`{path}` has {} devices, and {} of them on an uplink", both.0, both.1);
            section.errors.push(Diagnostic::new(wrong).at(section.place()));
        }
        Some(Links {
            devices,
            devices_per_uplink,
            link: above_zero(Some(link?))?,
            uplink: above_zero(Some(uplink?))?,
            pageable: above_zero(pageable),
        })
    }
}

impl FromSection for Device {
    const EXPECTED: &'static str = r#"a device: { kind = "host", copied_by = "pool", lends_slots = true, copy = { … } }"#;

    fn read(section: &Section<'_>) -> Option<Device> {
        section.documents(Device::DOCS);
        let kind = section.required("kind", "\"host\"");
        let copied_by = section.required("copied_by", "\"pool\"");
        let engines = section.plain("engines");
        let lends_slots = section.required("lends_slots", "true");
        let links = section.field::<Links>("links");
        let copy = section.required::<Cost>("copy", r#"{ fixed = "10 µs", per_byte = "0.1 ns/B" }"#);
        let kernels_at_once = section.plain("kernels_at_once");
        let slowed = section.field::<Vec<Slowed>>("slowed");
        let slowed_source = section.plain("slowed_source");
        let slowed_uncertainty = section.plain::<Share>("slowed_uncertainty").map(|s| s.0);
        if let Some(slowed) = slowed.as_ref().filter(|s| !s.windows(2).all(|w| w[0].busy < w[1].busy)) {
            section.errors.push(slowed.wrong("does not rise in `busy`"));
        }
        if let Some(links) = &links {
            if copied_by.is_some_and(|by| by != CopiedBy::Engines) {
                section.errors.push(links.wrong("have no meaning unless copied_by = \"engines\""));
            }
            if copy.as_ref().is_some_and(|copy| copy.per_byte.is_some()) {
                section.errors.push(links.wrong("say how fast bytes flow, and so does `device.copy.per_byte`"));
            }
        }
        Some(Device {
            kind: kind?,
            copied_by: copied_by?,
            engines: above_zero(engines),
            links: links.map(|links| links.value),
            lends_slots: lends_slots?,
            copy: copy?,
            kernels_at_once: above_zero(kernels_at_once),
            slowed: slowed.map(|s| s.value).unwrap_or_default(),
            slowed_source,
            slowed_uncertainty,
        })
    }
}
