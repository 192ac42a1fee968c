//! CronJobs.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy { generation: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("batch", "v1", "cronjobs", "cronjob", "CronJob")
};
