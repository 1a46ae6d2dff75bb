
-- Whether the job may be queued; runs in slurmctld, for every job.
local function judge(job)
  local resources = (job.tres_per_node or "") .. (job.tres_per_job or "") .. (job.tres_per_task or "")
  if not job.script or not string.find(resources, "gpu") then
    return slurm.SUCCESS
  end
  local asked = {
    script = job.script,
    tres_per_node = job.tres_per_node or "",
    tres_per_job = job.tres_per_job or "",
    tres_per_task = job.tres_per_task or "",
  }
  if job.min_nodes ~= slurm.NO_VAL and job.min_nodes > 0 then
    asked.nodes = job.min_nodes
  end
  if job.num_tasks ~= slurm.NO_VAL and job.num_tasks > 0 then
    asked.tasks = job.num_tasks
  end
  if job.time_limit ~= slurm.NO_VAL and job.time_limit > 0 and job.time_limit < 16777216 then
    asked.time_limit_minutes = job.time_limit
  end
  local verdict, reason, id = ask(asked)
  if not verdict then
    unchecked(reason)
    return slurm.SUCCESS
  end
  if id ~= "" then
    job.comment = commented(job.comment, id)
    job.admin_comment = commented(job.admin_comment, id) -- is kept by slurmdbd whatever AccountingStoreFlags says
  end
  if verdict == "warn" or verdict == "deny" then
    slurm.log_user("traincost: %s: %s", verdict, reason)
  end
  return verdict == "deny" and slurm.ERROR or slurm.SUCCESS
end

function slurm_job_submit(job, partitions, user)
  local done, code = pcall(judge, job)
  if not done then
    unchecked(tostring(code))
  end
  return done and code or slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return slurm.SUCCESS
end

return slurm.SUCCESS
