//! A machine as numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Cost, Measured, Store, store::above_zero};
use crate::{
    document::{Diagnostic, FromNode, Node, Positive, Section, Share, keyword},
    units::{ByteRate, Count, Duration, Fraction, Size},
};

/// A machine as numbers. See the [module documentation](super).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineModel {
    /// What it is, in a few words.
    pub title: String,
    /// The host's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Measured<Size>>,
    /// The cores.
    pub cpu: Cpu,
    /// What control itself costs.
    pub scheduler: Scheduler,
    /// The device.
    pub device: Device,
    /// What CPU jobs cost, by kind: the image loader's is `decode`.
    pub costs: BTreeMap<String, Cost>,
    /// The stores, by name; scenarios ask for `page-cache`, `disk` and `object`.
    pub stores: BTreeMap<String, Store>,
}

/// The cores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cpu {
    /// Hardware threads.
    pub threads: Measured<Count>,
    /// Threads of the pool when a scenario does not say; as many as hardware threads when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_threads: Option<Measured<Count>>,
    /// From the moment a sleeping thread has work until it wants a core.
    pub wake_up: Measured<Duration>,
    /// Speed of each busy hardware thread by how many are busy, with straight lines between; full speed when empty.
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

/// Speed of each busy hardware thread when so many are busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Busy hardware threads.
    pub busy: Count,
    /// Speed of each of them, relative to one that is busy alone.
    pub each: Fraction,
}

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

/// By how much a train step takes longer while so many hardware threads of the host are busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slowed {
    /// Busy hardware threads.
    pub busy: Count,
    /// By how much, relative to a step beside an idle host.
    pub by: Fraction,
}

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

impl MachineModel {
    /// Threads of the pool when nobody says otherwise.
    pub fn pool_threads(&self) -> u64 {
        self.cpu.pool_threads.as_ref().unwrap_or(&self.cpu.threads).value.0
    }

    pub(super) fn read(section: Section<'_>) -> Option<MachineModel> {
        let title = section.required("title", "\"what machine this is\"");
        let memory = section.plain("memory");
        let cpu = Cpu::read(section.section("cpu"));
        let scheduler = Scheduler::read(section.section("scheduler"));
        let device = section.required("device", "{ kind = \"host\", copied_by = \"pool\", lends_slots = true, copy = { … } }");
        let costs = entries::<Cost>(section.section("costs"));
        let stores = entries::<Store>(section.section("stores"));
        section.finish();
        Some(MachineModel {
            title: title?,
            memory: above_zero(memory),
            cpu: cpu?,
            scheduler: scheduler?,
            device: device?,
            costs,
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
        let threads = section.required("threads", "2");
        let wake_up = section.required("wake_up", "\"10 µs\"");
        let pool_threads = section.plain("pool_threads");
        let speed = section.field::<Vec<Speed>>("speed");
        let speed_source = section.plain("speed_source");
        let speed_uncertainty = section.plain::<Share>("speed_uncertainty").map(|s| s.0);
        let probe = section.plain("probe");
        if let Some(speed) = speed.as_ref().filter(|s| !s.windows(2).all(|w| w[0].busy < w[1].busy)) {
            section.errors.push(speed.wrong("does not rise in `busy`"));
        }
        section.finish();
        Some(Cpu {
            threads: above_zero(Some(threads?))?,
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
        match (after.checked_sub(1).map(|i| point(&self.speed[i])), self.speed.get(after).map(point)) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (busy as f64 - x0) / (x1 - x0),
            (Some((_, y)), None) | (None, Some((_, y))) => y,
            (None, None) => 1.0,
        }
    }
}

impl Scheduler {
    fn read(section: Section<'_>) -> Option<Scheduler> {
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

impl FromNode for Speed {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        Section::of(node, path, r#"a point such as { busy = 48, each = "92 %" }"#, |section| {
            let busy = section.required::<Positive<Count>>("busy", "48");
            let each = section.required::<Positive<Fraction>>("each", "\"92 %\"");
            Some(Speed { busy: busy?.0, each: each?.0 })
        })
    }
}

impl FromNode for Slowed {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        Section::of(node, path, r#"a point such as { busy = 48, by = "8 %" }"#, |section| {
            let busy = section.required::<Positive<Count>>("busy", "48");
            let by = section.required::<Fraction>("by", "\"8 %\"");
            Some(Slowed { busy: busy?.0, by: by? })
        })
    }
}

impl FromNode for Links {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        let example = r#"links: { devices = 8, devices_per_uplink = 2, link = "12 GB/s", uplink = "12.5 GB/s" }"#;
        Section::of(node, path, example, |section| {
            let devices = section.required("devices", "8");
            let devices_per_uplink = section.required("devices_per_uplink", "2");
            let link = section.required("link", "\"12 GB/s\"");
            let uplink = section.required("uplink", "\"12.5 GB/s\"");
            let pageable = section.plain("pageable");
            let (devices, devices_per_uplink): (Measured<Count>, Measured<Count>) =
                (above_zero(Some(devices?))?, above_zero(Some(devices_per_uplink?))?);
            // As many as there can be ranks.
            if devices.value.0 > u64::from(u16::MAX) {
                let wrong = Diagnostic::new(format!("`{path}.devices` is {}, too many", devices.value)).at(Some(&node.place));
                section.errors.push(wrong.expected(format!("at most {}", Count(u64::from(u16::MAX)))));
            }
            if devices_per_uplink.value > devices.value {
                let wrong =
                    format!("`{path}` has {} devices, and {} of them on an uplink", devices.value, devices_per_uplink.value);
                section.errors.push(Diagnostic::new(wrong).at(Some(&node.place)));
            }
            Some(Links {
                devices,
                devices_per_uplink,
                link: above_zero(Some(link?))?,
                uplink: above_zero(Some(uplink?))?,
                pageable: above_zero(pageable),
            })
        })
    }
}

impl FromNode for Device {
    fn from_node(node: &Node, path: &str) -> Result<Self, Diagnostic> {
        Section::of(
            node,
            path,
            r#"a device: { kind = "host", copied_by = "pool", lends_slots = true, copy = { … } }"#,
            |section| {
                let kind = section.required("kind", "\"host\"");
                let copied_by = section.required("copied_by", "\"pool\"");
                let engines = section.plain("engines");
                let lends_slots = section.required("lends_slots", "true");
                let links = section.field::<Links>("links");
                let copy = section.required::<Cost>("copy", r#"{ fixed = "10 µs", per_byte = "0.1 ns/B" }"#);
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
                    slowed: slowed.map(|s| s.value).unwrap_or_default(),
                    slowed_source,
                    slowed_uncertainty,
                })
            },
        )
    }
}
