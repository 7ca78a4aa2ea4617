//! `docs/models.md` is what the code says.

mod common;

#[test]
fn the_table_of_models_is_up_to_date() {
    let path = common::fixture("../docs/models.md");
    let text = ropex::model::support::markdown();
    if std::env::var_os("ROPEX_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "docs/models.md is out of date");
}
