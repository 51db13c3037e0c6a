//! A scenario as it is typed: every field may be missing, and knows where it stands.

use super::words::{Codec, DatasetKind, Design, DeviceStage, OnErrors, Order, Resize, Tail};
use crate::{
    document::{Positive, Section, Share, documented},
    fault::Hits,
    model::Latency,
    units::{ByteRate, Count, Duration, RequestRate, SampleRate, Size},
};

/// Declares a table as it is typed: every field is optional, knows its place, and has its comment, and where its type's example says too
/// little one of its own, for the schema.
macro_rules! typed {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $($(#[$($field_doc:tt)*])* $field:ident: $type:ty $(= $example:literal)?,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $($(#[$($field_doc)*])* $vis $field: Option<crate::document::Spanned<$type>>,)+
        }

        impl $name {
            /// Takes the fields out of the section; unknown ones are left for [`Section::finish`](crate::document::Section::finish).
            $vis fn read(section: &crate::document::Section<'_>) -> $name {
                section.documents(&[$(crate::document::Doc {
                    name: stringify!($field),
                    text: crate::document::doc_of!($(#[$($field_doc)*])*),
                    example: [$(stringify!($example),)?].first().copied(),
                },)+]);
                $name { $($field: section.field(stringify!($field)),)+ }
            }

            /// Notes where each field stands that somebody wrote.
            $vis fn note(&self, places: &mut crate::scenario::Places) {
                $(if let Some(field) = &self.$field {
                    places.note(&field.path, &field.place);
                })+
            }
        }
    };
}

typed! {
    /// The top of the file.
    pub(super) struct Top {
        /// What the scenario shows, in a line.
        title: String = "Two cores, a small budget",
        /// Why, at more length.
        description: String = "A budget of little more than the minimum.",
        /// Seed of every draw; 0 when left out.
        seed: Count = 1,
        /// The machine it is simulated on: one that is part of the program, such as `p4d.24xlarge`, the path of a model's file, or `this`
        /// for this computer as calibrated, which is meant when left out.
        machine: String = "reference-2core",
    }
}

typed! {
    /// `[dataset]`
    pub(super) struct Dataset {
        /// Where samples come from; what `path`, `model` or `bytes` implies, else `synthetic`, when left out.
        kind: DatasetKind,
        /// How many samples; 400 of a synthetic dataset and the model's own of a drawn one when left out. A folder has as many as it has.
        count: Positive<Count> = 4000,
        /// Seed of the content of a synthetic dataset; 1 when left out.
        seed: Count = 1,
        /// The model that sizes are drawn from: one that is part of the program, such as `imagenet`, or the path of a model's file.
        model: String = "imagenet",
        /// Size of the records of a drawn dataset, which are read and not decoded, in place of a model.
        bytes: Positive<Size> = "150 MB",
        /// Standard deviation of that size; none when left out.
        deviation: Size = "40 MB",
        /// The folder of images.
        path: String = "data/train",
    }
}

typed! {
    /// `[store]`
    pub(super) struct Store {
        /// The store's name in the machine's model: `page-cache`, which is meant when left out, `disk`, `object` or another; or `emulated`
        /// for one that every read of a real run waits for as the fields below say.
        kind: String = "disk",
        /// From the request to its first byte, instead of the model's.
        first_byte: Latency = "30 ms",
        /// The most that one read gets, instead of the model's.
        per_connection: Positive<ByteRate> = "90 MB/s",
        /// What all reads share, instead of the model's.
        bandwidth: Positive<ByteRate>,
        /// The most reads at a time, connections or a disk's queue depth, instead of the model's.
        connections: Positive<Count> = 64,
        /// Requests beyond this rate are throttled; instead of the model's.
        requests: Positive<RequestRate>,
        /// Requests that an idle store takes at once before the rate counts, instead of the model's.
        burst: Positive<Count> = 5500,
    }
}

typed! {
    /// `[loader]`
    pub(super) struct Loader {
        /// Whose loader it is; `towtank` when left out.
        design: Design,
        /// Samples in a batch; 32 when left out.
        batch: Positive<Count>,
        /// Threads of the pool; the machine's own number when left out.
        threads: Positive<Count> = 4,
        /// Samples under way at once; when left out four for each thread where reads take none, eight where they wait for a disk, and at
        /// least 64 where they wait for a network.
        lanes: Positive<Count> = 64,
        /// Slots in the ring, each for a decoded sample, at least a batch; as many as are of use when left out.
        ring: Positive<Count> = 128,
        /// All memory of the loader; 1 GiB when left out.
        budget: Positive<Size> = "256 MiB",
        /// Batches made ready ahead of the consumer; 2 when left out.
        prefetch: Count = 2,
        /// Copies to the device in flight at once; 2 when left out.
        copies: Positive<Count> = 2,
        /// A stage on the device that every batch goes through between its copy and the consumer; none when left out. Its cost is that of the
        /// machine's kernels; a real run has it on a GPU.
        device_stage: DeviceStage,
        /// Batches in that stage at once; 1 when left out.
        device_stage_limit: Positive<Count> = 2,
        /// Which order batches come in; `plan` when left out.
        order: Order,
        /// Whether samples are shuffled, by the scenario's seed; `true` when left out.
        shuffle: bool,
        /// Whether an epoch's last batch is left out when it is not full; `false` when left out.
        drop_last: bool,
        /// Passes over the dataset; 1 when left out.
        epochs: Positive<Count> = 3,
        /// This rank, counted from 0; 0 when left out. Without meaning beside `ranks.count`.
        rank: Count = 0,
        /// Number of ranks, of which this loader is one; 1 when left out. Without meaning beside `ranks.count`.
        world: Positive<Count> = 8,
        /// What ranks do when samples do not divide evenly among them; `uneven` when left out.
        tail: Tail,
        /// What a failed sample means; `fail` when left out.
        errors: OnErrors,
        /// How many samples may fail under `errors = "skip"`; any number when left out.
        skip_at_most: super::words::Allowed,
        /// Tries of a read after the first; 3 when left out.
        retries: Count = 3,
        /// Pause before the first retry, which doubles with each; 50 ms when left out.
        retry_pause: Duration,
        /// The longest pause before a retry; 5 s when left out.
        retry_pause_most: Duration = "5 s",
        /// Reads at once; as many as lanes when left out.
        fetch_limit: Positive<Count> = 16,
        /// The longest a read may take before it fails; without end when left out.
        fetch_deadline: Positive<Duration> = "400 ms",
        /// Decode jobs at once; as many as lanes when left out.
        decode_limit: Positive<Count> = 4,
        /// The longest a decode job may take before it fails; without end when left out.
        decode_deadline: Positive<Duration> = "1 s",
        /// How many samples launches may be ahead of the oldest that is not done, with `order = "completion"`.
        window: Positive<Count> = 256,
        /// Width and height that every image is brought to; 224 when left out.
        size: super::words::ImageSize,
        /// How an image of any shape becomes one of the target's; `squash` when left out.
        resize: Resize,
        /// Which JPEG decoder is used in a real run; `auto` when left out.
        codec: Codec,
        /// Worker processes, with `design = "worker-processes"`: with 0 the main process does it all. As many as `threads` would be when
        /// left out.
        workers: Count = 8,
        /// Batches that each worker has outstanding, with `design = "worker-processes"`; 2 when left out.
        prefetch_factor: Positive<Count> = 2,
        /// How long the main process needs to start a worker, with `design = "worker-processes"`, instead of what the machine's model
        /// says: it grows with the dataset that each worker is given a copy of.
        worker_start: Duration = "400 ms",
    }
}

typed! {
    /// `[ranks]`
    pub(super) struct Ranks {
        /// Ranks side by side, simulated or run; 1 when left out.
        count: Positive<Count> = 8,
        /// Ranks on a node, each node a machine of its own, which only a simulation has; all on one when left out.
        per_node: Positive<Count> = 8,
        /// Whether they wait for each other after every step, as data-parallel training does; `true` when left out.
        barrier: bool,
    }
}

typed! {
    /// `[consumer]`
    pub(super) struct Consumer {
        /// How long it works on a batch; no time when neither this nor `rate` is there.
        step: Duration,
        /// The samples it takes in a second when it need not wait: another way to say `step`.
        rate: Positive<SampleRate>,
        /// The link to the device that it works on, emulated: every batch is copied over it, one at a time. What the machine has when left
        /// out.
        link: Positive<ByteRate>,
        /// How long it is busy with itself before it asks for the first batch; no time when left out.
        start_up: Duration = "2 s",
        /// Batches it works on at once: it gives back the oldest when it has so many; 1 when left out.
        hold: Positive<Count> = 1,
        /// Batches after which it leaves; all when left out.
        leave_after: Positive<Count> = 100,
    }
}

typed! {
    /// `[faults]`
    pub(super) struct Faults {
        /// Samples whose file is not there, at every try.
        missing: Hits,
        /// Samples of which the store has only the first part.
        truncated: Hits,
        /// The part that is left of a truncated sample.
        truncated_keep: Share = "50 %",
        /// Samples whose bytes are not what their format says.
        undecodable: Hits,
        /// Samples on which the decode job panics.
        panicking: Hits,
        /// Reads that fail; another try may succeed.
        transient: Hits,
        /// Reads that the store refuses because there are too many; another try may succeed.
        throttled: Hits,
        /// Reads that deliver nothing and never end.
        stalled: Hits,
        /// Reads that take `slow_times` as long.
        slow_reads: Hits,
        /// Decode jobs that take `slow_times` as long.
        slow_jobs: Hits,
        /// How many times as long slow reads, jobs and kernels take.
        slow_times: Positive<Count> = 10,
        /// Copies to the device that fail.
        failed_copies: Hits,
        /// Batches on which the stage on the device fails.
        failed_kernels: Hits,
        /// Batches on which the stage on the device takes `slow_times` as long.
        slow_kernels: Hits,
    }
}

typed! {
    /// `[replay]`
    pub(super) struct Replay {
        /// What `towtank check` found broken.
        invariant: String = "exactly_once",
        /// The loader that it was found in, where that is one of somebody's own: only the tests of that loader can repeat it.
        design: String = "my_loader::Loader",
        /// The choices that differ from first come, first served; none when left out.
        tape: super::replay::Choices,
        /// Seed of a schedule by chance, instead of a tape.
        random: Count = 4711,
        /// A schedule by priorities, instead of a tape: their seed, how many things have to happen in one order, and about how many choices
        /// there are.
        pct: super::replay::Pct,
        /// Whether time is abstract: costs do not count, and any leaf that has begun may end next.
        abstract_time: bool = true,
        /// The batch, counted from 0, after which another run goes on.
        resume_after: Count = 3,
        /// Hash of the trace.
        trace_hash: super::replay::Hash,
    }
}

documented! {
    /// A whole file.
    pub(super) struct File {
        /// The top.
        pub(super) top: Top,
        /// The samples.
        pub(super) dataset: Dataset,
        /// Where they lie, and what the scenario says of that which the machine's model does not.
        pub(super) store: Store,
        /// The loader.
        pub(super) loader: Loader,
        /// Ranks side by side: each has a loader, a ring, a budget and a device of its own; those on a node share its cores,
        /// pool, store and links to the devices.
        pub(super) ranks: Ranks,
        /// The train step.
        pub(super) consumer: Consumer,
        /// What goes wrong.
        pub(super) faults: Faults,
        /// The schedule under which it failed a check, as `towtank check` writes it.
        pub(super) replay: Replay,
        /// What is expected of it all.
        pub(super) expect: super::expect::Expectations,
    }
}

impl File {
    pub(super) fn read(root: Section<'_>) -> File {
        root.documents(File::DOCS);
        let top = Top::read(&root);
        let sections = ["dataset", "store", "loader", "consumer", "faults", "ranks", "replay"].map(|name| root.section(name));
        let file = File {
            top,
            dataset: Dataset::read(&sections[0]),
            store: Store::read(&sections[1]),
            loader: Loader::read(&sections[2]),
            consumer: Consumer::read(&sections[3]),
            faults: Faults::read(&sections[4]),
            ranks: Ranks::read(&sections[5]),
            replay: Replay::read(&sections[6]),
            expect: super::expect::Expectations::read(root.section("expect")),
        };
        if file.replay.invariant.is_none() && root.has("replay") && !sections[6].has("invariant") {
            sections[6].missing("invariant", "\"exactly_once\"");
        }
        if file.top.title.is_none() && !root.has("title") {
            root.missing("title", "\"what this scenario shows\"");
        }
        sections.into_iter().for_each(Section::finish);
        root.finish();
        file
    }

    /// Where everything stands that somebody wrote.
    pub(super) fn places(&self) -> super::Places {
        let mut places = super::Places::default();
        self.top.note(&mut places);
        self.dataset.note(&mut places);
        self.store.note(&mut places);
        self.loader.note(&mut places);
        self.ranks.note(&mut places);
        self.consumer.note(&mut places);
        self.faults.note(&mut places);
        self.replay.note(&mut places);
        places
    }
}
