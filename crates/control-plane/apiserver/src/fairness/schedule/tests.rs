use super::*;

fn scheduler(capacity: u32, levels: &[(&str, u32, f64, Option<Queuing>)]) -> Scheduler<usize> {
    let mut scheduler = Scheduler::new(capacity);
    let limits = levels.iter().map(|(name, seats, weight, queuing)| {
        (Arc::from(*name), Limits { seats: *seats, weight: *weight, queuing: *queuing })
    });
    scheduler.configure(&limits.collect());
    scheduler
}

const QUEUES: Option<Queuing> = Some(Queuing { queues: 64, hand: 6, longest: 50 });

/// Flows that keep `wants` requests open each, served for some rounds; says how often each
/// was served. `cost` is how long a request of the flow takes.
fn simulate(seed: u64, flows: &[(&str, u64, usize, f64)], rounds: usize) -> Vec<usize> {
    let levels = [("low", 100, 100.0, QUEUES), ("high", 100, 100.0, QUEUES)];
    let mut scheduler = scheduler(4, &levels);
    let mut served = vec![0; flows.len()];
    let mut running: Vec<(SeatGrant, usize)> = Vec::new();
    let mut random = seed | 1;
    for (index, (level, flow, wants, _)) in flows.iter().enumerate() {
        for _ in 0..*wants {
            if let Arrival::Begins(slot) = scheduler.arrive(level, *flow, 1, || index) {
                running.push((slot, index));
            }
        }
    }
    for _ in 0..rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let which = usize::try_from(random % running.len() as u64).unwrap();
        let (slot, index) = running.swap_remove(which);
        served[index] += 1;
        let (level, flow, _, cost) = flows[index];
        scheduler.finish(&slot, cost);
        running.extend(scheduler.dispatch().into_iter().map(|(index, slot)| (slot, index)));
        if let Arrival::Begins(slot) = scheduler.arrive(level, flow, 1, || index) {
            running.push((slot, index));
        }
        running.extend(scheduler.dispatch().into_iter().map(|(index, slot)| (slot, index)));
        assert!(scheduler.running() <= 4);
    }
    served
}

#[test]
fn a_flood_leaves_the_others_their_share() {
    for seed in 1..40 {
        let flows = [("low", 11, 200, 0.003), ("low", 0x5555_1234_9876, 2, 0.003)];
        let served = simulate(seed * 7919, &flows, 4000);
        // The flood has six queues, the other one as many; two at a time is all it wants.
        assert!(served[1] * 4 >= served[0], "seed {seed}: {served:?}");
    }
}

#[test]
fn levels_share_by_weight_and_by_time() {
    for seed in 1..20 {
        let flows = [("low", 1, 100, 0.003), ("high", 2, 100, 0.003)];
        let served = simulate(seed * 104_729, &flows, 4000);
        let ratio = served[0] as f64 / served[1] as f64;
        assert!((0.8..1.25).contains(&ratio), "seed {seed}: {served:?}");
        let flows = [("low", 1, 100, 0.030), ("high", 2, 100, 0.003)];
        let served = simulate(seed * 104_729, &flows, 4000);
        assert!(served[1] > served[0] * 5, "a slower flow is served less often: {served:?}");
    }
}

#[test]
fn a_level_without_queues_sends_away_and_a_full_queue_too() {
    let mut it = scheduler(10, &[("reject", 2, 1.0, None)]);
    assert!(matches!(it.arrive("reject", 1, 1, || 0), Arrival::Begins(_)));
    let Arrival::Begins(slot) = it.arrive("reject", 1, 1, || 0) else { panic!() };
    assert_eq!(it.arrive("reject", 1, 1, || 0), Arrival::Refused("concurrency-limit"));
    it.finish(&slot, 0.001);
    assert!(matches!(it.arrive("reject", 1, 1, || 0), Arrival::Begins(_)));

    let short = Some(Queuing { queues: 1, hand: 1, longest: 1 });
    let mut it = scheduler(10, &[("short", 1, 1.0, short)]);
    let Arrival::Begins(slot) = it.arrive("short", 1, 1, || 0) else { panic!() };
    assert_eq!(it.arrive("short", 1, 1, || 1), Arrival::Waits);
    assert_eq!(it.arrive("short", 1, 1, || 2), Arrival::Refused("queue-full"));
    it.finish(&slot, 0.001);
    let begun = it.dispatch();
    assert_eq!(begun.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_wide_request_gets_its_turn() {
    let mut it = scheduler(4, &[("low", 100, 1.0, QUEUES)]);
    let slots: Vec<SeatGrant> = (0..3)
        .map(|_| match it.arrive("low", 1, 1, || 0) {
            Arrival::Begins(slot) => slot,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(it.arrive("low", 2, 10, || 7), Arrival::Waits, "it needs all there is");
    assert_eq!(it.arrive("low", 3, 1, || 8), Arrival::Waits, "no request overtakes");
    for slot in &slots[..2] {
        it.finish(slot, 0.003);
        assert!(it.dispatch().is_empty());
    }
    it.finish(&slots[2], 0.003);
    let begun = it.dispatch();
    assert!(begun.iter().any(|(ticket, _)| *ticket == 7), "{begun:?}");
}
