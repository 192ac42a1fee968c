use super::*;

const PAGE: PageName = (FileNo(1), Region(4));

fn blocks(first: u32, count: u32) -> Blocks {
    Blocks::of(first, count)
}

/// Writes all records that are due. Gives what they say.
fn write_all(sums: &mut SumPlaces) -> Vec<(PageName, Blocks)> {
    let mut written = Vec::new();
    while let Some(due) = sums.next_due() {
        sums.written(due.place);
        written.push((due.page, due.open));
    }
    written
}

fn opened(sums: &mut SumPlaces, page: PageName, what: Blocks) {
    assert!(!sums.open(page, &what, |_| false));
    write_all(sums);
    assert!(sums.open(page, &what, |_| false));
}

#[test]
fn data_is_written_once_its_blocks_are_recorded_as_open() {
    let mut sums = SumPlaces::new(Vec::new(), 8, |_| true);
    assert!(!sums.open(PAGE, &blocks(1, 2), |_| false));
    let first = sums.next_due().unwrap();
    assert_eq!((first.page, first.open), (PAGE, blocks(1, 2)));
    // Another write of the page does not keep the first one waiting.
    assert!(!sums.open(PAGE, &blocks(9, 1), |_| false));
    assert_eq!(sums.next_due(), None, "one record of a page at a time");
    sums.written(first.place);
    assert!(sums.open(PAGE, &blocks(1, 2), |_| false));
    assert!(!sums.open(PAGE, &blocks(9, 1), |_| false));
    assert_eq!(write_all(&mut sums), [(PAGE, blocks(1, 2).or(&blocks(9, 1)))]);
    assert!(sums.open(PAGE, &blocks(9, 1), |_| false));
    assert!(sums.open(PAGE, &Blocks::NONE, |_| false));
}

#[test]
fn a_flush_closes_what_no_write_has_touched_since_it_began() {
    let mut sums = SumPlaces::new(Vec::new(), 8, |_| true);
    opened(&mut sums, PAGE, blocks(0, 8));
    sums.begin_write(PAGE, 0, 1);
    sums.end_write(PAGE, 0, 1);
    sums.begin_write(PAGE, 1, 1);
    sums.begin_flush();
    // This one began before, and this one since.
    sums.end_write(PAGE, 1, 1);
    sums.begin_write(PAGE, 5, 1);
    let upto = sums.close(|_| true);
    assert!(!sums.is_recorded(upto));
    assert_eq!(write_all(&mut sums), [(PAGE, blocks(1, 1).or(&blocks(5, 1)))]);
    assert!(sums.is_recorded(upto));
    assert!(sums.needs(PAGE));
    sums.end_write(PAGE, 5, 1);
    sums.begin_flush();
    sums.close(|_| true);
    assert_eq!(write_all(&mut sums), [(PAGE, Blocks::NONE)]);
    assert!(!sums.needs(PAGE));
    assert_eq!(sums.open_blocks(PAGE), Blocks::NONE);
}

#[test]
fn a_block_that_is_closed_and_opened_again_waits_for_a_new_record() {
    let mut sums = SumPlaces::new(Vec::new(), 8, |_| true);
    opened(&mut sums, PAGE, blocks(3, 1));
    sums.begin_flush();
    sums.close(|_| true);
    let closing = sums.next_due().unwrap();
    // The file still says open, and will not soon.
    assert!(!sums.open(PAGE, &blocks(3, 1), |_| false));
    sums.written(closing.place);
    assert!(!sums.open(PAGE, &blocks(3, 1), |_| false));
    assert_eq!(write_all(&mut sums), [(PAGE, blocks(3, 1))]);
    assert!(sums.open(PAGE, &blocks(3, 1), |_| false));
}

#[test]
fn blocks_whose_checksums_are_not_known_stay_open() {
    let mut sums = SumPlaces::new(Vec::new(), 8, |_| true);
    opened(&mut sums, PAGE, blocks(3, 1));
    sums.begin_flush();
    let upto = sums.close(|_| false);
    assert!(sums.is_recorded(upto) && sums.open_blocks(PAGE) == blocks(3, 1));
}

#[test]
fn places_are_used_again_and_without_one_nothing_is_known() {
    let mut sums = SumPlaces::new(Vec::new(), 3, |_| true);
    let page = |region| (FileNo(1), Region(region));
    for region in [1, 2] {
        opened(&mut sums, page(region), ALL);
    }
    sums.begin_flush();
    sums.close(|page| page.1 == Region(1));
    write_all(&mut sums);
    // The first one is settled, and on disk as it is in memory.
    assert!(!sums.open(page(3), &ALL, |page| page.1 == Region(1)));
    write_all(&mut sums);
    assert_eq!(sums.open_blocks(page(1)), Blocks::NONE);
    sums.release(page(2));
    opened(&mut sums, page(4), blocks(0, 1));
    assert!(!sums.open(page(5), &blocks(0, 1), |_| false));
    assert_eq!(write_all(&mut sums), [(OTHERS, ALL)]);
    assert!(sums.open(page(5), &blocks(0, 1), |_| false));
    assert_eq!(sums.open_blocks(page(6)), ALL);
    assert_eq!(sums.open_blocks(page(4)), blocks(0, 1));
}

#[test]
fn the_next_process_knows_what_the_last_one_recorded() {
    let record = |region, open| {
        let page = (FileNo(1), Region(region));
        let crcs = Box::new([region; REGION_BLOCKS as usize]);
        Some(SumRecord { ticket: Ticket(u64::from(region)), page, open, crcs })
    };
    let found = vec![None, record(4, blocks(7, 1)), None, record(5, Blocks::NONE), record(6, ALL)];
    let mut sums = SumPlaces::new(found, 8, |region| region != Region(6));
    assert_eq!(sums.open_blocks(PAGE), blocks(7, 1));
    assert_eq!(sums.take_left(PAGE).unwrap()[0], 4);
    assert_eq!(sums.take_left(PAGE), None);
    assert!(sums.open(PAGE, &blocks(7, 1), |_| false), "the file says so already");
    assert_eq!(sums.open_blocks((FileNo(2), Region(4))), Blocks::NONE);
    assert_eq!(sums.open_blocks((FileNo(1), Region(6))), Blocks::NONE, "it was not being written");
    assert!(!sums.open((FileNo(1), Region(6)), &blocks(0, 1), |_| false));
    let due = sums.next_due().unwrap();
    assert!(due.ticket > Ticket(6), "newer than what the file has of the page");
    assert_eq!(SumPlaces::default().open_blocks(PAGE), ALL, "there is no file");
}
