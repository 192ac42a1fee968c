use super::*;

const GIB: u64 = 1 << 30;

fn claim() -> Claim {
    Claim {
        namespace: "n".into(),
        name: "c".into(),
        uid: "u".into(),
        class: "local".into(),
        access_modes: vec!["ReadWriteOnce".into()],
        volume_mode: "Filesystem".into(),
        request: "1Gi".into(),
        size: GIB,
        capacity: None,
        wanted_on: Some("one".into()),
        volume: None,
        is_bound: false,
        is_deleting: false,
        source: None,
        origin: None,
        progress: FillProgress::Open,
    }
}

fn bound() -> Claim {
    Claim { volume: Some("pvc-u".into()), is_bound: true, capacity: Some(GIB), ..claim() }
}

fn volume() -> LocalVolume {
    LocalVolume {
        name: "pvc-u".into(),
        phase: "Bound".into(),
        is_dropped: true,
        capacity: GIB,
        owner: "u".into(),
        is_deleting: false,
        holds_finalizer: true,
        replicated: None,
        place: VolumePlace::Here,
    }
}

const DISK: FoundVolume = FoundVolume { mark: None, size: Some(GIB) };
const NEW: FoundVolume = FoundVolume { mark: Some(DirectoryMark::New), size: Some(GIB) };
const COPY: FoundVolume = FoundVolume { mark: Some(DirectoryMark::Copy), size: Some(GIB) };

struct Case {
    what: &'static str,
    claim: Option<Claim>,
    volume: Option<LocalVolume>,
    found: Option<FoundVolume>,
    doing: Option<LongAction>,
    expected: &'static [&'static str],
}

impl Default for Case {
    fn default() -> Self {
        let (claim, volume, found, doing) = (Some(bound()), Some(volume()), Some(DISK), None);
        Self { what: "", claim, volume, found, doing, expected: &[] }
    }
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let world = VolumeWorld {
            node: "one",
            filled_here: BTreeSet::from(["handle".to_owned()]),
            claims: case.claim.iter().map(|own| (own.uid.as_str(), own)).collect(),
            volumes: case.volume.iter().map(|own| (own.name.as_str(), own)).collect(),
            found: case.found.iter().map(|own| ("pvc-u", *own)).collect(),
            under_way: case.doing.iter().map(|own| ("pvc-u", *own)).collect(),
        };
        let actions = plan(&world);
        let words: Vec<&str> = actions.iter().map(word).collect();
        assert_eq!(words, case.expected, "{}", case.what);
    }
}

fn word(action: &VolumeAction) -> &'static str {
    match action {
        VolumeAction::Provision { .. } => "provision",
        VolumeAction::Settle { .. } => "settle",
        VolumeAction::Fill { .. } => "fill",
        VolumeAction::Grow { .. } => "grow",
        VolumeAction::Remove { .. } => "remove",
        VolumeAction::Release { .. } => "release",
        VolumeAction::Leave { .. } => "leave",
        VolumeAction::Discard { .. } => "discard",
        VolumeAction::Cancel { .. } => "cancel",
    }
}

#[test]
fn a_volume_is_made_for_a_claim_of_this_node_once() {
    let elsewhere = Claim { wanted_on: Some("two".into()), ..claim() };
    let unassigned = Claim { wanted_on: None, ..claim() };
    let deleted = Claim { is_deleting: true, ..claim() };
    let unclaimed = Case { volume: None, found: None, ..Case::default() };
    let case = |what, claim: Claim, expected| Case {
        what,
        claim: Some(claim),
        expected,
        ..Case { volume: None, found: None, ..Case::default() }
    };
    check(vec![
        case("announced", claim(), &["provision"]),
        case("for another node", elsewhere, &[]),
        case("waits for a consumer", unassigned, &[]),
        case("deleted before its time", deleted, &[]),
        Case { found: Some(NEW), ..case("half made", claim(), &["provision"]) },
        Case { doing: Some(LongAction::Other), ..case("being made", claim(), &[]) },
        Case {
            what: "made, not bound",
            claim: Some(claim()),
            volume: Some(LocalVolume { phase: "Available".into(), ..volume() }),
            ..Case::default()
        },
        Case {
            what: "made, mark not taken off",
            claim: Some(claim()),
            found: Some(NEW),
            expected: &["settle"],
            ..Case::default()
        },
        Case { what: "nothing wrong", ..Case::default() },
        Case { what: "nothing at all", claim: None, ..unclaimed },
    ]);
}

#[test]
fn files_go_only_with_their_volume_or_if_they_never_had_one() {
    let released = || LocalVolume { phase: "Released".into(), ..volume() };
    let kept = || LocalVolume { is_dropped: false, ..released() };
    check(vec![
        Case { what: "lost its objects", claim: None, volume: None, ..Case::default() },
        Case {
            what: "never had an object",
            claim: None,
            volume: None,
            found: Some(NEW),
            expected: &["discard"],
            ..Case::default()
        },
        Case {
            what: "its claim was deleted before the volume existed",
            claim: Some(Claim { is_deleting: true, ..claim() }),
            volume: None,
            found: Some(NEW),
            expected: &["discard"],
            ..Case::default()
        },
        Case {
            what: "released",
            claim: None,
            volume: Some(released()),
            expected: &["remove"],
            ..Case::default()
        },
        Case {
            what: "released, files gone",
            claim: None,
            volume: Some(released()),
            found: None,
            expected: &["remove"],
            ..Case::default()
        },
        Case { what: "retained", claim: None, volume: Some(kept()), ..Case::default() },
        Case {
            what: "retained and deleted",
            claim: None,
            volume: Some(LocalVolume { is_deleting: true, ..kept() }),
            expected: &["release"],
            ..Case::default()
        },
        Case {
            what: "deleted under its claim",
            volume: Some(LocalVolume { is_deleting: true, ..volume() }),
            ..Case::default()
        },
        Case {
            what: "its disk is lost",
            found: Some(FoundVolume { mark: None, size: None }),
            ..Case::default()
        },
    ]);
}

#[test]
fn a_claim_is_filled_until_it_says_that_it_is() {
    let with = |source: FillSource, progress| Claim { source: Some(source), progress, ..bound() };
    let case =
        |what, claim, expected| Case { what, claim: Some(claim), expected, ..Case::default() };
    let unbound = Claim { is_bound: false, ..with(FillSource::Blank, FillProgress::Open) };
    let gone = Claim { is_deleting: true, ..with(FillSource::Blank, FillProgress::Open) };
    check(vec![
        case("to be filled", with(FillSource::Blank, FillProgress::Open), &["fill"]),
        case("filled", with(FillSource::Blank, FillProgress::Over), &[]),
        case("not bound", unbound, &[]),
        case("upload to be announced", with(FillSource::Upload, FillProgress::Open), &["fill"]),
        case("upload announced", with(FillSource::Upload, FillProgress::Ready), &[]),
        case("deleted", gone.clone(), &[]),
        Case {
            doing: Some(LongAction::Filling),
            ..case("being filled", with(FillSource::Blank, FillProgress::Open), &[])
        },
        Case { doing: Some(LongAction::Filling), ..case("deleted meanwhile", gone, &["cancel"]) },
        Case {
            what: "claim gone meanwhile",
            claim: None,
            doing: Some(LongAction::Filling),
            expected: &["cancel"],
            ..Case::default()
        },
    ]);
}

#[test]
fn a_larger_request_grows_disk_volume_and_claim() {
    let larger = |capacity| Claim {
        request: "2Gi".into(),
        size: 2 * GIB,
        capacity: Some(capacity),
        ..bound()
    };
    let grown = FoundVolume { mark: None, size: Some(2 * GIB) };
    let large = || LocalVolume { capacity: 2 * GIB, ..volume() };
    check(vec![
        Case { what: "asked", claim: Some(larger(GIB)), expected: &["grow"], ..Case::default() },
        Case {
            what: "stopped after the file",
            claim: Some(larger(GIB)),
            found: Some(grown),
            expected: &["grow"],
            ..Case::default()
        },
        Case {
            what: "stopped after the volume",
            claim: Some(larger(GIB)),
            volume: Some(large()),
            found: Some(grown),
            expected: &["grow"],
            ..Case::default()
        },
        Case {
            what: "done",
            claim: Some(larger(2 * GIB)),
            volume: Some(large()),
            found: Some(grown),
            ..Case::default()
        },
    ]);
}

#[test]
fn a_replicated_volume_is_filled_and_otherwise_left_to_others() {
    let replicated = || Some(LocalVolume { replicated: Some("handle".into()), ..volume() });
    let source = || Claim { source: Some(FillSource::Blank), ..bound() };
    check(vec![
        Case {
            what: "it is filled without a directory",
            claim: Some(source()),
            volume: replicated(),
            found: None,
            expected: &["fill"],
            ..Case::default()
        },
        Case {
            what: "by the node that is the first of its replicas",
            claim: Some(source()),
            volume: Some(LocalVolume { replicated: Some("another".into()), ..volume() }),
            found: None,
            ..Case::default()
        },
        Case { what: "it is not grown", volume: replicated(), found: None, ..Case::default() },
        Case {
            what: "it is not removed",
            claim: None,
            volume: replicated().map(|it| LocalVolume { phase: "Released".into(), ..it }),
            found: None,
            ..Case::default()
        },
    ]);
}

#[test]
fn a_volume_comes_and_goes_with_its_machine() {
    let at = |place| Some(LocalVolume { place, ..volume() });
    let released = || Some(LocalVolume { phase: "Released".into(), ..at(VolumePlace::Left)? });
    let case = |what, place, found, expected| Case {
        what,
        volume: at(place),
        found,
        expected,
        ..Case::default()
    };
    check(vec![
        case("its data comes", VolumePlace::Arriving, Some(COPY), &[]),
        case("its data does not come yet", VolumePlace::Arriving, None, &[]),
        case("an old copy, until the new one is made", VolumePlace::Arriving, Some(DISK), &[]),
        case("it has come", VolumePlace::Here, Some(COPY), &["settle"]),
        Case {
            what: "it does not come",
            volume: None,
            found: Some(COPY),
            expected: &["discard"],
            ..Case::default()
        },
        Case {
            what: "a copy is being made",
            volume: None,
            found: Some(COPY),
            doing: Some(LongAction::Other),
            ..Case::default()
        },
        Case {
            what: "it is another node's, and nobody knows why",
            volume: None,
            ..Case::default()
        },
        case("it has left", VolumePlace::Left, Some(DISK), &["leave"]),
        case(
            "it has left, and its copy does not come back",
            VolumePlace::Left,
            Some(COPY),
            &["leave"],
        ),
        case("it has left, files gone", VolumePlace::Left, None, &[]),
        Case {
            doing: Some(LongAction::Other),
            ..case("it is leaving", VolumePlace::Left, Some(DISK), &[])
        },
        Case {
            what: "it has left and is released: its volume is for its node to delete",
            claim: None,
            volume: released(),
            expected: &["leave"],
            ..Case::default()
        },
    ]);
}
