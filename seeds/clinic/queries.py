"""The longer statements of the front desk's tools."""

from __future__ import annotations

__all__ = ["FIND_PATIENT", "FIND_SLOTS", "IN_HOURS", "VISIT"]

FIND_PATIENT = """
SELECT p.id, p.full_name, p.phone, p.home_clinic_id, c.name AS home_clinic, p.usual_provider_id,
       i.name AS insurer,
       (SELECT count(*) FROM appointments a
        WHERE a.patient_id = p.id AND a.status = 'completed') AS past_visits
FROM patients p
JOIN clinics c ON c.id = p.home_clinic_id
LEFT JOIN coverages v ON v.patient_id = p.id AND v.valid_to IS NULL
LEFT JOIN insurers i ON i.id = v.insurer_id
WHERE lower(p.full_name) = lower($1) AND ($2::date IS NULL OR p.date_of_birth = $2)
ORDER BY p.id
"""

# The free times of a stretch of days: hours, in steps of ten minutes, less time off, less what is booked.
# One time a day comes first, so that three offers are three different days where that is possible.
FIND_SLOTS = """
WITH wanted AS (
    SELECT minutes, minutes * interval '1 minute' AS length FROM visit_kinds WHERE code = $1
), free AS (
    SELECT p.id AS provider_id, p.full_name AS provider, c.id AS clinic_id, c.name AS clinic,
           slot AS starts_at, w.minutes,
           row_number() OVER (PARTITION BY slot::date ORDER BY slot, p.id) AS of_day
    FROM wanted w
    CROSS JOIN providers p
    JOIN clinics c ON c.id = p.clinic_id
    CROSS JOIN generate_series($2::date::timestamp, $3::date::timestamp, interval '1 day') AS day
    JOIN provider_hours h ON h.provider_id = p.id AND h.weekday = extract(isodow FROM day)
    CROSS JOIN generate_series(day + h.opens, day + h.closes - w.length, interval '10 minutes') AS slot
    WHERE ($4::text IS NULL OR p.specialty = $4)
      AND ($5::int IS NULL OR p.id = $5)
      AND ($6::int IS NULL OR p.clinic_id = $6)
      AND slot > clinic_now()
      AND NOT EXISTS (SELECT FROM provider_time_off o WHERE o.provider_id = p.id AND o.day = slot::date)
      AND NOT EXISTS (
          SELECT FROM appointments a
          WHERE a.provider_id = p.id AND a.status = 'booked'
            AND a.starts_at < slot + w.length AND a.ends_at > slot)
)
SELECT provider_id, provider, clinic_id, clinic, starts_at, minutes
FROM (SELECT * FROM free ORDER BY of_day, starts_at LIMIT $7) AS best
ORDER BY starts_at, provider_id
"""

IN_HOURS = """
SELECT $2::timestamp > clinic_now()
   AND EXISTS (
       SELECT FROM provider_hours h
       WHERE h.provider_id = $1 AND h.weekday = extract(isodow FROM $2::timestamp)
         AND h.opens <= $2::timestamp::time
         AND $2::timestamp::time + $3 * interval '1 minute' <= h.closes)
   AND NOT EXISTS (SELECT FROM provider_time_off o WHERE o.provider_id = $1 AND o.day = $2::timestamp::date)
"""

VISIT = """
SELECT a.id, a.patient_id, a.provider_id, p.full_name AS provider, p.specialty, a.clinic_id, c.name AS clinic,
       a.kind, k.label AS kind_label, a.starts_at, a.minutes, a.status, a.reason
FROM appointments a
JOIN providers p ON p.id = a.provider_id
JOIN clinics c ON c.id = a.clinic_id
JOIN visit_kinds k ON k.code = a.kind
"""
