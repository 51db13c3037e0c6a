//! A scenario as it is typed: every field may be missing, and knows where it stands.

use super::words::{Codec, DatasetKind, OnErrors, Order, Resize, Tail};
use crate::{
    document::{Positive, Section, Share},
    fault::Hits,
    model::Latency,
    units::{ByteRate, Count, Duration, RequestRate, SampleRate, Size},
};

/// Declares a table as it is typed: every field is optional and knows its place.
macro_rules! typed {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $($(#[$field_doc])* $vis $field: Option<crate::document::Spanned<$type>>,)+
        }

        impl $name {
            /// Takes the fields out of the section; unknown ones are left for [`Section::finish`](crate::document::Section::finish).
            $vis fn read(section: &crate::document::Section<'_>) -> $name {
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
        title: String,
        description: String,
        seed: Count,
        machine: String,
    }
}

typed! {
    /// `[dataset]`
    pub(super) struct Dataset {
        kind: DatasetKind,
        count: Positive<Count>,
        seed: Count,
        model: String,
        bytes: Positive<Size>,
        deviation: Size,
        path: String,
    }
}

typed! {
    /// `[store]`
    pub(super) struct Store {
        kind: String,
        first_byte: Latency,
        per_connection: Positive<ByteRate>,
        bandwidth: Positive<ByteRate>,
        connections: Positive<Count>,
        requests: Positive<RequestRate>,
        burst: Positive<Count>,
    }
}

typed! {
    /// `[loader]`
    pub(super) struct Loader {
        batch: Positive<Count>,
        threads: Positive<Count>,
        lanes: Positive<Count>,
        ring: Positive<Count>,
        budget: Positive<Size>,
        prefetch: Count,
        copies: Positive<Count>,
        order: Order,
        shuffle: bool,
        drop_last: bool,
        epochs: Positive<Count>,
        rank: Count,
        world: Positive<Count>,
        tail: Tail,
        errors: OnErrors,
        skip_at_most: super::words::Allowed,
        retries: Count,
        retry_pause: Duration,
        retry_pause_most: Duration,
        fetch_limit: Positive<Count>,
        fetch_deadline: Positive<Duration>,
        decode_limit: Positive<Count>,
        decode_deadline: Positive<Duration>,
        window: Positive<Count>,
        size: super::words::ImageSize,
        resize: Resize,
        codec: Codec,
    }
}

typed! {
    /// `[ranks]`
    pub(super) struct Ranks {
        count: Positive<Count>,
        per_node: Positive<Count>,
        barrier: bool,
    }
}

typed! {
    /// `[consumer]`
    pub(super) struct Consumer {
        step: Duration,
        rate: Positive<SampleRate>,
        link: Positive<ByteRate>,
        start_up: Duration,
        hold: Positive<Count>,
        leave_after: Positive<Count>,
    }
}

typed! {
    /// `[faults]`
    pub(super) struct Faults {
        missing: Hits,
        truncated: Hits,
        truncated_keep: Share,
        undecodable: Hits,
        panicking: Hits,
        transient: Hits,
        throttled: Hits,
        stalled: Hits,
        slow_reads: Hits,
        slow_jobs: Hits,
        slow_times: Positive<Count>,
        failed_copies: Hits,
    }
}

/// A whole file.
pub(super) struct File {
    pub(super) top: Top,
    pub(super) dataset: Dataset,
    pub(super) store: Store,
    pub(super) loader: Loader,
    pub(super) ranks: Ranks,
    pub(super) consumer: Consumer,
    pub(super) faults: Faults,
    pub(super) expect: super::expect::Expectations,
}

impl File {
    pub(super) fn read(root: Section<'_>) -> File {
        let top = Top::read(&root);
        let sections = ["dataset", "store", "loader", "consumer", "faults", "ranks"].map(|name| root.section(name));
        let file = File {
            top,
            dataset: Dataset::read(&sections[0]),
            store: Store::read(&sections[1]),
            loader: Loader::read(&sections[2]),
            consumer: Consumer::read(&sections[3]),
            faults: Faults::read(&sections[4]),
            ranks: Ranks::read(&sections[5]),
            expect: super::expect::Expectations::read(root.section("expect")),
        };
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
        places
    }
}
