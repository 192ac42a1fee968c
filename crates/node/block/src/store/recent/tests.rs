use super::*;

const BOOT: BootId = BootId::from_u128(7);

fn page(region: u32) -> PageName {
    (FileNo(1), Region(region))
}

fn record(region: u32, ticket: u64) -> Record {
    let presence = Presence::new(Blocks::of(3, 5), Blocks::of(100, 1));
    Record { ticket: Ticket(ticket), page: page(region), presence }
}

#[test]
fn a_record_is_read_as_it_was_written_and_only_in_its_boot() {
    let bytes = encode(BOOT, 5, &record(9, 2), 1);
    assert_eq!(decode(&bytes, BOOT, 5), Some(record(9, 2)));
    assert_eq!(decode(&bytes, BootId::from_u128(8), 5), None);
    assert_eq!(decode(&bytes, BOOT, 6), None);
    for bit in 0..RECORD * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&bad, BOOT, 5), None, "bit {bit}");
    }
    assert_eq!(decode(&[0; 256], BOOT, 5), None);
    assert_eq!(decode(&bytes[..100], BOOT, 5), None);
}

#[test]
fn of_two_records_about_a_page_the_newer_counts() {
    let mut file = Vec::new();
    for (region, ticket) in [(1, 4), (2, 9), (1, 6)] {
        file.extend(encode(BOOT, 5, &record(region, ticket), 3));
        file.resize(file.len().next_multiple_of(PLACE as usize), 0);
    }
    let found = read(&file, Some(BOOT), 5);
    assert_eq!(found, [None, Some(record(2, 9)), Some(record(1, 6))]);
    assert_eq!(read(&file, None, 5), []);
    let recent = Recent::new(&found, 8);
    assert_eq!((recent.ticket(), recent.index.len(), recent.slots.len()), (Ticket(9), 2, 3));
}

#[test]
fn changes_are_recorded_in_order_and_together() {
    let mut recent = Recent::new(&[], 8);
    assert!(recent.changed(page(1), |_| false));
    let first = recent.ticket();
    let due = recent.next_due().unwrap();
    assert_eq!((due.page, due.ticket, due.offset), (page(1), first, 0));
    assert!(recent.changed(page(1), |_| false) && recent.changed(page(2), |_| false));
    let later = recent.ticket();
    assert_eq!(recent.next_due(), None, "one at a time");
    recent.written();
    assert!(recent.is_recorded(first) && !recent.is_recorded(later));
    let pages: Vec<PageName> = std::iter::from_fn(|| {
        let due = recent.next_due()?;
        recent.written();
        Some(due.page)
    })
    .collect();
    assert_eq!(pages, [page(2), page(1)]);
    assert!(recent.is_recorded(later));
}

#[test]
fn only_the_place_of_a_settled_page_is_given_away() {
    let mut recent = Recent::new(&[], 2);
    for region in [1, 2] {
        assert!(recent.changed(page(region), |_| unreachable!("there is room")));
    }
    assert!(!recent.changed(page(3), |_| true), "both are not recorded yet");
    while recent.next_due().is_some() {
        recent.written();
    }
    assert!(!recent.changed(page(3), |_| false));
    assert!(recent.changed(page(3), |of| of == page(2)));
    assert_eq!(recent.next_due().map(|due| (due.page, due.offset)), Some((page(3), PLACE)));
    assert!(!recent.index.contains_key(&page(2)));
}
