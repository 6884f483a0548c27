//! Options and devices that make no sense: exit code 2, or 1 where it takes a look at the device.

use std::fs;

use crate::strake::Place;

#[test]
fn a_device_that_is_none_is_named_and_the_known_kinds_are_listed() {
    let place = Place::new();
    place.strake("bench floppy:0").refused(2, &["floppy:", "null:", "file"]);
    place.strake("bench pcie:0000:01:00.0/1").refused(1, &["pcie:", "not built yet"]);
    place.strake("bench missing").refused(1, &["missing", "no such file", "?size="]);
    place.strake("bench /").refused(1, &["`/`", "a directory"]);
    place.strake("bench /dev/null").refused(1, &["/dev/null", "neither a file nor a block node"]);
    place.strake("bench file:").refused(1, &["no path"]);
    place.strake("bench mem:").refused(2, &["mem:", "size"]);
    place.strake("bench mem:0").refused(2, &["mem:0", "0 blocks"]);
    place.strake("bench fault:?error=1").refused(2, &["wraps no device", "@DEVICE"]);
    place.strake("bench model:p5521").refused(2, &["p5521", "p5520"]);
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn an_unknown_option_of_a_device_is_an_error_and_never_ignored() {
    let place = Place::new();
    place.file("disk", &[0; 65_536]);
    for (device, word) in [
        ("mem:1M?blok=512", "blok"),
        ("null:1M?x=1", "unknown option x"),
        ("disk?engin=uring", "engin"),
        ("fault:?eror=1@mem:1M", "eror"),
        ("trace:?form=json@mem:1M", "form"),
        ("model:p5520?chanels=4", "chanels"),
    ] {
        place.strake(&format!("bench {device}")).refused(2, &[word, "known"]);
    }
    for (device, word) in [
        ("mem:1M?block=500", "500"),
        ("mem:1M?block=2M", "block"),
        ("disk?block=1000", "power of two"),
        ("disk?engine=floppy", "uring or mmap"),
        ("disk?direct=maybe", "expected 0 or 1"),
        ("disk?write_unit=100", "multiple"),
        ("fault:?error=2@mem:1M", "from 0 to 1"),
        ("trace:?format=xml@mem:1M", "format"),
    ] {
        let ended = place.strake(&format!("bench {device}"));
        ended.refused(ended.code.filter(|c| *c == 1).unwrap_or(2), &[word]);
    }
    assert_eq!(place.names(), ["disk"]);
}

#[test]
fn numbers_that_are_none_are_refused_for_every_option() {
    let place = Place::new();
    for option in [
        "--bs=0",
        "--bs=4x",
        "--bs=-4k",
        "--bs=8k-4k",
        "--bs=4G",
        "--bs=",
        "--bs=4k-",
        "--bs=1.5k",
        "--iodepth=0",
        "--iodepth=8193",
        "--iodepth=many",
        "--iodepth=-1",
        "--numjobs=0",
        "--numjobs=1025",
        "--numjobs=x",
        "--size=big",
        "--size=-1",
        "--size=99999999999999999999",
        "--size=16E",
        "--offset=-1",
        "--offset=here",
        "--runtime=0",
        "--runtime=soon",
        "--runtime=-1",
        "--runtime=1e9",
        "--runtime=400d",
        "--number_ios=0",
        "--number_ios=-1",
        "--rwmixread=101",
        "--rwmixread=x",
        "--rate_iops=0",
        "--rate_iops=x",
        "--fsync=-1",
        "--fsync=x",
        "--seed=x",
        "--seed=-1",
        "--cpus_allowed=x",
        "--cpus_allowed=3-1",
        "--cpus_allowed=",
        "--cpus_allowed=4000",
        "--rw=readd",
        "--idle=maybe",
        "--verify=md5",
        "--output-format=xml",
        "--nonsense",
        "--time_based",
        "--size=0",
        "--fsync=1",
    ] {
        let ended = place.strake(&format!("bench mem:1M {option}"));
        let name = option.split('=').next().unwrap();
        ended.refused(2, &[name]);
    }
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn what_does_not_fit_the_device_is_refused_with_the_numbers() {
    let place = Place::new();
    place.strake("bench mem:1M --bs=1000").refused(2, &["--bs", "1000", "512"]);
    place.strake("bench mem:1M?block=4k --bs=512").refused(2, &["--bs", "4096"]);
    place.strake("bench mem:1M --size=2M").refused(2, &["--size", "beyond", "1048576"]);
    place.strake("bench mem:1M --offset=1M").refused(2, &["--offset", "beyond", "1048576"]);
    place.strake("bench mem:1M --offset=100").refused(2, &["--offset", "512"]);
    place.strake("bench mem:1M --size=100").refused(2, &["--size", "512"]);
    place.strake("bench mem:1M --size=512").refused(2, &["--size", "--bs"]);
    place.strake("bench mem:1M --rw=write --numjobs=300").refused(2, &["each job", "--size"]);
    place.strake("bench mem:1M --bs=2M").refused(2, &["--bs", "--size"]);
    place.file("tiny", &[0; 100]);
    place.strake("bench tiny").refused(1, &["tiny", "100 bytes", "less than one block"]);
    place.file("empty", &[]);
    place.strake("bench empty").refused(1, &["empty", "0 bytes", "less than one block"]);
    place.file("small", &[0; 1000]);
    place.strake("bench small?block=4k").refused(1, &["small", "1000 bytes|block"]);
    assert_eq!(fs::read(place.path().join("tiny")).unwrap(), [0; 100]);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let place = Place::new();
    place.file("disk", &[0; 65_536]);
    place.strake("bench mem:1M --verify").refused(2, &["--verify", "--rw=randread"]);
    place.strake("bench mem:1M --rw=write --bs=4k-8k --verify").refused(2, &["--verify", "--bs"]);
    place.strake("bench --virtual-time").refused(2, &["--virtual-time", "model:"]);
    place.strake("bench disk --virtual-time").refused(2, &["--virtual-time", "model:"]);
    place.strake("bench mem:1M --virtual-time").refused(2, &["--virtual-time", "model:"]);
    place.strake("bench model:p5520?size=64k@disk --virtual-time").refused(2, &["real"]);
    place.strake("bench mem:1M mem:1M --offset=2M").refused(2, &["--offset"]);
    assert_eq!(place.names(), ["disk"]);
}

/// `--output` and `--plot` are opened before the run, and used to be left behind empty, or with
/// an older result cut off, when the run was then refused.
#[test]
fn a_refused_run_leaves_no_output_behind_and_no_older_one_cut_off() {
    let place = Place::new();
    place.file("older", b"older");
    let ended = place.strake("bench missing --output=older --plot=new.svg");
    ended.refused(1, &["missing"]);
    assert_eq!(place.names(), ["older"]);
    assert_eq!(fs::read(place.path().join("older")).unwrap(), b"older");
    place.strake("bench mem:1M --number_ios=1 -o no/such/folder").refused(2, &["no/such/folder"]);
    place.strake("bench mem:1M --number_ios=1 --plot=/").refused(2, &["cannot write /"]);
}

/// A file that a name asks to be created is not created for a run that makes no sense.
#[test]
fn a_refused_run_creates_no_device() {
    let place = Place::new();
    place.strake("bench new?size=1M --bs=1000").refused(2, &["--bs"]);
    place.strake("bench new?size=1M missing").refused(1, &["missing"]);
    place.strake("bench new?size=100").refused(2, &["size=100"]);
    place.strake("bench no/such/new?size=1M").refused(1, &["no/such/new"]);
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn an_output_that_is_a_device_is_refused_and_the_device_is_as_it_was() {
    let place = Place::new();
    place.file("disk", &vec![7; 1 << 20]);
    for line in [
        "bench disk -o disk",
        "bench disk --plot=./disk",
        "trace disk -o disk",
        "bench trace:disk@file:disk",
    ] {
        let ended = place.strake(&format!("{line} --number_ios=10"));
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
        ended.says(&["disk", "is also a device", "name another file"]);
        assert_eq!(fs::read(place.path().join("disk")).unwrap(), vec![7; 1 << 20], "{line}");
    }
}
